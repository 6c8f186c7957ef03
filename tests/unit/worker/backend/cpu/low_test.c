/* Channel blocks to bf16 pixels and back, of every table: odd sizes, padding channels, steps; what
 * lies behind the arrays stays. */
#include <string.h>

#include "kernels/half.h"
#include "tests/lib/test.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/kernels_half.h"

#define STORED_MAX 8192
#define GUARD 0x1234

static float stored[STORED_MAX] __attribute__((aligned(64)));
static float back[STORED_MAX] __attribute__((aligned(64)));
static uint16_t half[STORED_MAX];

struct shape {
    uint32_t images, channels, height, width, step;
};

static size_t at(const struct shape *shape, uint32_t block, size_t i, size_t c, size_t y, size_t x)
{
    const size_t blocks = (shape->channels + block - 1) / block;

    return (((i * blocks + c / block) * shape->height + y) * shape->width + x) * block + c % block;
}

/* Different everywhere, and bf16. */
static float value_at(size_t i, size_t c, size_t y, size_t x)
{
    return half_bf16_to((uint16_t)(0x3f80 + i * 4001 + c * 257 + y * 31 + x));
}

static void check_pixel(const struct shape *shape, uint32_t block, size_t i, size_t y, size_t x)
{
    const size_t rows = (shape->height + shape->step - 1) / shape->step;
    const size_t columns = (shape->width + shape->step - 1) / shape->step;
    const bool is_read = y % shape->step == 0 && x % shape->step == 0;
    const size_t pixel = (i * rows + y / shape->step) * columns + x / shape->step;

    for (size_t c = 0; c < shape->channels; c++) {
        const float value = value_at(i, c, y, x);

        if (is_read)
            CHECK_EQ(half[pixel * shape->channels + c], half_float_bits(value) >> 16);
        CHECK(back[at(shape, block, i, c, y, x)] == (is_read ? value : 0.0F));
    }
    for (size_t c = shape->channels; c % block != 0; c++)
        CHECK(back[at(shape, block, i, c, y, x)] == 0.0F);
}

static void check_shape(const struct cpu_kernels *kernels, const struct shape *shape)
{
    const uint32_t block = kernels->block, blocks = (shape->channels + block - 1) / block;
    const struct cpu_area area = {shape->images, blocks, shape->height, shape->width};
    const size_t count = (size_t)shape->images * shape->channels *
                         ((shape->height + shape->step - 1) / shape->step) *
                         ((shape->width + shape->step - 1) / shape->step);
    const size_t size = (size_t)shape->images * blocks * block * shape->height * shape->width;

    CHECK(size < STORED_MAX && count < STORED_MAX);
    memset(back, 0x55, sizeof back);
    for (size_t i = 0; i < shape->images; i++)
        for (size_t c = 0; c < shape->channels; c++)
            for (size_t p = 0; p < (size_t)shape->height * shape->width; p++)
                stored[at(shape, block, i, c, p / shape->width, p % shape->width)] =
                    value_at(i, c, p / shape->width, p % shape->width);
    half[count] = GUARD;
    kernels->half->pack(&area, shape->channels, shape->step, stored, half);
    kernels->half->unpack(&area, shape->channels, shape->step, half, back);
    CHECK_EQ(half[count], GUARD);
    CHECK_EQ(half_float_bits(back[size]), 0x55555555U);
    for (size_t i = 0; i < shape->images; i++)
        for (size_t p = 0; p < (size_t)shape->height * shape->width; p++)
            check_pixel(shape, block, i, p / shape->width, p % shape->width);
}

static void check_table(const struct cpu_kernels *kernels)
{
    static const struct shape shapes[] = {
        {1, 16, 1, 1, 1}, {2, 32, 5, 3, 1}, {3, 24, 4, 7, 2}, {2, 5, 3, 3, 2}, {1, 40, 7, 7, 3},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_shape(kernels, &shapes[i]);
    for (size_t n = 0; n < 70; n++) {
        for (size_t i = 0; i < n; i++)
            stored[i] = value_at(0, 0, 0, i);
        half[n] = GUARD;
        kernels->half->narrow(stored, n, half);
        CHECK_EQ(half[n], GUARD);
        kernels->half->widen(half, n, back);
        for (size_t i = 0; i < n; i++)
            CHECK(back[i] == stored[i]);
    }
}

TEST(generic)
{
    check_table(&cpu_kernels_generic);
}

#if defined(__x86_64__)
TEST(avx2)
{
    if (!__builtin_cpu_supports("avx2"))
        SKIP("no AVX2");
    check_table(&cpu_kernels_avx2);
}

TEST(avx512)
{
    if (!__builtin_cpu_supports("avx512bw"))
        SKIP("no AVX-512");
    check_table(&cpu_kernels_avx512);
}
#endif

TEST_MAIN
