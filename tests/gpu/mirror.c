#include "tests/gpu/mirror.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/values.h"
#include "tests/gpu/device.h"

const struct cuda_module *mirror_device;

static uint64_t random_state;

void mirror_need_device(void)
{
    static struct err err;
    const char *seed = getenv("DDP_SEED");
    char name[256];

    if (mirror_device != NULL)
        return;
    random_state = seed != NULL ? strtoull(seed, NULL, 10) : 1;
    mirror_device = device_open(random_state, name, &err);
    if (mirror_device == NULL)
        SKIP(err.text);
    (void)printf("# %s on %s, DDP_SEED=%llu\n", mirror_device->build, name,
                 (unsigned long long)random_state);
}

/* splitmix64 (Steele, Lea, Flood 2014) */
uint64_t draw_u64(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15U;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

float draw(void)
{
    return (float)(int32_t)(draw_u64() >> 40) * 0x1p-23F - 1.0F;
}

uint32_t draw_below(uint32_t n)
{
    return (uint32_t)(draw_u64() % n);
}

static size_t whole(const struct mirror *mirror)
{
    return (size_t)((uint8_t *)mirror->host - mirror->host_base) + mirror->byte_count +
           MIRROR_GUARD;
}

struct mirror mirror_new(size_t byte_count, size_t skew)
{
    const size_t all = MIRROR_GUARD + skew + byte_count + MIRROR_GUARD;
    struct mirror mirror = {.host_base = aligned_alloc(256, (all + 255) / 256 * 256),
                            .byte_count = byte_count};
    void *device;

    CHECK(mirror.host_base != NULL);
    memset(mirror.host_base, MIRROR_POISON, all);
    CHECK_CUDA(mirror_device->memory_new(&device, all, MIRROR_POISON, &err_));
    mirror.device_base = device;
    mirror.host = mirror.host_base + MIRROR_GUARD + skew;
    mirror.device = mirror.device_base + MIRROR_GUARD + skew;
    return mirror;
}

void mirror_free(struct mirror *mirror)
{
    void *device = mirror->device_base;

    mirror_device->memory_free(&device);
    free(mirror->host_base);
}

void mirror_upload(const struct mirror *mirror)
{
    CHECK_CUDA(
        mirror_device->copy_in(mirror->device_base, mirror->host_base, whole(mirror), &err_));
}

void mirror_compare(const struct mirror *mirror, const char *what)
{
    const size_t all = whole(mirror);
    uint8_t *back = malloc(all);
    size_t i = 0;

    CHECK(back != NULL);
    memset(back, ~MIRROR_POISON, all);
    CHECK_CUDA(mirror_device->copy_out(back, mirror->device_base, all, &err_));
    while (i < all && back[i] == mirror->host_base[i])
        i++;
    free(back);
    if (i < all)
        FAIL("%s: the kernel differs from its reference first at byte %td of %zu", what,
             mirror->host_base + i - (uint8_t *)mirror->host, mirror->byte_count);
}

void mirror_compare_guards(const struct mirror *mirror, const char *what)
{
    const size_t before = (size_t)((uint8_t *)mirror->host - mirror->host_base);

    CHECK_CUDA(mirror_device->copy_out(mirror->host, mirror->device, mirror->byte_count, &err_));
    CHECK(before >= MIRROR_GUARD);
    mirror_compare(mirror, what);
}

size_t type_bytes(enum kernel_type type)
{
    return type == KERNEL_F32 ? 4 : 2;
}

struct mirror mirror_random(enum kernel_type type, size_t count, size_t skew, float scale)
{
    struct mirror mirror = mirror_new(count * type_bytes(type), skew);

    for (size_t i = 0; i < count; i++)
        values_set(mirror.host, type, i, draw() * scale);
    mirror_upload(&mirror);
    return mirror;
}

struct mirror mirror_of(const void *bytes, size_t byte_count)
{
    struct mirror mirror = mirror_new(byte_count, 0);

    memcpy(mirror.host, bytes, byte_count);
    mirror_upload(&mirror);
    return mirror;
}

struct mirror mirror_zeros(size_t byte_count)
{
    struct mirror mirror = mirror_new(byte_count, 0);

    memset(mirror.host, 0, byte_count);
    mirror_upload(&mirror);
    return mirror;
}

struct mirror mirror_rates(const struct kernel_rates *values)
{
    struct mirror rates = mirror_zeros(sizeof *values);

    kernel_rates_ref(rates.host, values);
    RUN(rates, (struct kernel_rates *)rates.device, values);
    mirror_compare(&rates, "rates");
    return rates;
}
