#include "tests/gpu/twins.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/values.h"
#include "tests/gpu/device.h"

const struct cuda_module *twins_device;

static uint64_t random_state;

void twins_need_device(void)
{
    static struct err err;
    const char *seed = getenv("DDP_SEED");
    char name[256];

    if (twins_device != NULL)
        return;
    random_state = seed != NULL ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    twins_device = device_open(random_state, name, &err);
    if (twins_device == NULL)
        SKIP(err.text);
    (void)printf("# %s on %s, DDP_SEED=%llu\n", twins_device->build, name,
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

static size_t whole(const struct twins *twins)
{
    return (size_t)((uint8_t *)twins->host - twins->host_base) + twins->byte_count + TWINS_GUARD;
}

struct twins twins_new(size_t byte_count, size_t skew)
{
    const size_t all = TWINS_GUARD + skew + byte_count + TWINS_GUARD;
    struct twins twins = {.host_base = aligned_alloc(256, (all + 255) / 256 * 256),
                          .byte_count = byte_count};
    void *device;

    CHECK(twins.host_base != NULL);
    memset(twins.host_base, TWINS_POISON, all);
    CHECK_CUDA(twins_device->memory_new(&device, all, TWINS_POISON, &err_));
    twins.device_base = device;
    twins.host = twins.host_base + TWINS_GUARD + skew;
    twins.device = twins.device_base + TWINS_GUARD + skew;
    return twins;
}

void twins_free(struct twins *twins)
{
    void *device = twins->device_base;

    twins_device->memory_free(&device);
    free(twins->host_base);
}

void twins_upload(const struct twins *twins)
{
    CHECK_CUDA(twins_device->copy_in(twins->device_base, twins->host_base, whole(twins), &err_));
}

void twins_compare(const struct twins *twins, const char *what)
{
    const size_t all = whole(twins);
    uint8_t *back = malloc(all);
    size_t i = 0;

    CHECK(back != NULL);
    memset(back, ~TWINS_POISON, all);
    CHECK_CUDA(twins_device->copy_out(back, twins->device_base, all, &err_));
    while (i < all && back[i] == twins->host_base[i])
        i++;
    free(back);
    if (i < all)
        FAIL("%s: the kernel differs from its twin first at byte %td of %zu", what,
             twins->host_base + i - (uint8_t *)twins->host, twins->byte_count);
}

size_t type_bytes(enum kernel_type type)
{
    return type == KERNEL_F32 ? 4 : 2;
}

struct twins twins_random(enum kernel_type type, size_t count, size_t skew, float scale)
{
    struct twins twins = twins_new(count * type_bytes(type), skew);

    for (size_t i = 0; i < count; i++)
        values_set(twins.host, type, i, draw() * scale);
    twins_upload(&twins);
    return twins;
}

struct twins twins_of(const void *bytes, size_t byte_count)
{
    struct twins twins = twins_new(byte_count, 0);

    memcpy(twins.host, bytes, byte_count);
    twins_upload(&twins);
    return twins;
}

struct twins twins_zeros(size_t byte_count)
{
    struct twins twins = twins_new(byte_count, 0);

    memset(twins.host, 0, byte_count);
    twins_upload(&twins);
    return twins;
}

struct twins twins_rates(const struct kernel_rates *values)
{
    struct twins rates = twins_zeros(sizeof *values);

    kernel_rates_ref(rates.host, values);
    RUN(rates, (struct kernel_rates *)rates.device, values);
    twins_compare(&rates, "rates");
    return rates;
}
