/* The bf16 loops of every table against the rounded results of the same table's fp32 loops, bit for
 * bit. Odd sizes, channels that do not fill a vector, strides, NaNs; memory after the arrays must
 * not change. */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "tests/lib/test.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/kernels_bf16.h"
#include "worker/backend/cpu/kernels_bf16_pool.h"
#include "worker/backend/cpu/kernels_residual.h"

#define MOST 65536 /* elements of a value, padding included */
#define CHANNELS_MOST 512
#define GUARD 0x1234

struct shape {
    uint32_t images, channels, height, width;
};

static const struct shape shapes[] = {
    {1, 16, 1, 1}, {2, 32, 5, 3},   {3, 24, 4, 7},  {2, 5, 3, 3},   {1, 40, 7, 7},
    {1, 1, 2, 9},  {2, 100, 17, 9}, {3, 64, 12, 8}, {2, 300, 9, 9}, {1, 37, 21, 19},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* A value in both forms; fp32 is in channel blocks. */
struct both {
    float f32[MOST] __attribute__((aligned(64)));
    uint16_t bf16[MOST];
};

static struct both x, other, dy, y, made;
static float want[MOST] __attribute__((aligned(64)));
static float vectors[6][CHANNELS_MOST] __attribute__((aligned(64)));

static const struct cpu_norm_add none = {NULL, false};
static uint32_t random_state;

/* -2 to 2 */
static float random_value(void)
{
    random_state = random_state * 1664525U + 1013904223U;
    return (float)(random_state >> 8) / 4194304.0F - 2.0F;
}

static struct cpu_area area_of(const struct cpu_kernels *kernels, const struct shape *shape)
{
    const uint32_t block = kernels->block;

    return (struct cpu_area){shape->images, (shape->channels + block - 1) / block, shape->height,
                             shape->width};
}

static size_t rows_of(const struct shape *shape)
{
    return (size_t)shape->images * shape->height * shape->width;
}

static size_t count_of(const struct shape *shape)
{
    return rows_of(shape) * shape->channels;
}

static struct cpu_rows rows(const struct shape *shape)
{
    return (struct cpu_rows){shape->images, (size_t)shape->height * shape->width, shape->channels};
}

static struct cpu_pixels pixels(const struct shape *shape)
{
    return (struct cpu_pixels){shape->images, shape->height, shape->width, shape->channels};
}

/* The index of an element of a value in channel blocks. */
static size_t blocked_at(const struct cpu_kernels *kernels, const struct shape *shape, size_t row,
                         size_t c)
{
    const struct cpu_area area = area_of(kernels, shape);
    const size_t count = (size_t)shape->height * shape->width, block = kernels->block;

    return ((row / count * area.blocks + c / block) * count + row % count) * block + c % block;
}

static void set(const struct cpu_kernels *kernels, const struct shape *shape, struct both *value)
{
    CHECK(rows_of(shape) * (shape->channels + 15) < MOST);
    memset(value->f32, 0, sizeof value->f32);
    for (size_t i = 0; i < count_of(shape); i++) {
        value->bf16[i] = half_bf16_from(random_value());
        value->f32[blocked_at(kernels, shape, i / shape->channels, i % shape->channels)] =
            half_bf16_to(value->bf16[i]);
    }
}

static void set_all(const struct cpu_kernels *kernels, const struct shape *shape)
{
    random_state = 7;
    set(kernels, shape, &x);
    set(kernels, shape, &other);
    set(kernels, shape, &dy);
    memset(&y, 0, sizeof y);
    memset(vectors, 0, sizeof vectors);
    for (size_t k = 0; k < 6; k++)
        for (size_t c = 0; c < shape->channels; c++)
            vectors[k][c] = random_value();
    made.bf16[count_of(shape)] = GUARD;
}

/* Checks that `made`, in bf16, equals `want`, in fp32 and channel blocks, rounded. */
static void check_made(const struct cpu_kernels *kernels, const struct shape *shape)
{
    for (size_t i = 0; i < count_of(shape); i++) {
        const float value =
            want[blocked_at(kernels, shape, i / shape->channels, i % shape->channels)];

        CHECK_EQ(made.bf16[i], half_bf16_from(value));
    }
    CHECK_EQ(made.bf16[count_of(shape)], GUARD);
}

/* Compilers put multiplications and additions together in other places of the two loops, so the last
 * bits may differ. */
static void check_sums(const struct shape *shape, double got[2][CHANNELS_MOST],
                       double expected[2][CHANNELS_MOST])
{
    for (size_t k = 0; k < 2; k++) {
        for (size_t c = 0; c < shape->channels; c++)
            CHECK(fabs(got[k][c] - expected[k][c]) <= 1e-5 * (fabs(expected[k][c]) + 1.0));
        for (size_t c = shape->channels; c < CHANNELS_MOST; c++)
            CHECK(got[k][c] == 1.0);
    }
}

static void start_sums(double sums[2][CHANNELS_MOST])
{
    for (size_t c = 0; c < CHANNELS_MOST; c++)
        sums[0][c] = sums[1][c] = 1.0;
}

static void check_norm_sums(const struct cpu_kernels *kernels, const struct shape *shape)
{
    const struct cpu_area area = area_of(kernels, shape);
    double got[2][CHANNELS_MOST], expected[2][CHANNELS_MOST];

    set_all(kernels, shape);
    start_sums(got);
    start_sums(expected);
    kernels->bf16->norm_sums(rows(shape), x.bf16, vectors[0], got[0], got[1]);
    kernels->norm_sums(&area, x.f32, vectors[0], expected[0], expected[1]);
    check_sums(shape, got, expected);
}

static void check_norm(const struct cpu_kernels *kernels, const struct shape *shape, bool relu)
{
    const struct cpu_norm_add once = {other.bf16, false}, twice = {other.bf16, true};
    const struct cpu_area area = area_of(kernels, shape);
    const size_t size = (size_t)area.blocks * kernels->block * rows_of(shape);

    set_all(kernels, shape);
    kernels->norm_apply(&area, x.f32, vectors[0], vectors[1], relu, want);
    kernels->bf16->norm_apply(rows(shape), x.bf16, vectors[0], vectors[1], &none, relu, made.bf16);
    check_made(kernels, shape);

    kernels->residual->norm_add(&area, x.f32, vectors[0], vectors[1], other.f32, relu, want);
    kernels->bf16->norm_apply(rows(shape), x.bf16, vectors[0], vectors[1], &once, relu, made.bf16);
    check_made(kernels, shape);

    kernels->norm_apply(&area, x.f32, vectors[0], vectors[1], false, want);
    kernels->round_bf16(want, size, want);
    kernels->residual->add(want, other.f32, relu, size, want);
    kernels->bf16->norm_apply(rows(shape), x.bf16, vectors[0], vectors[1], &twice, relu, made.bf16);
    check_made(kernels, shape);
}

/* Both sums and dx, with a ReLU after the norm or without. */
static void check_norm_backward(const struct cpu_kernels *kernels, const struct shape *shape,
                                bool has_relu)
{
    const struct cpu_area area = area_of(kernels, shape);
    const struct cpu_norm_relu relu = {has_relu ? vectors[0] : NULL, has_relu ? vectors[1] : NULL};
    const struct cpu_norm_dx dx_of = {vectors[2], vectors[3], vectors[4], vectors[5]};
    double got[2][CHANNELS_MOST], expected[2][CHANNELS_MOST];
    const float *out = has_relu ? y.f32 : NULL;

    set_all(kernels, shape);
    kernels->norm_apply(&area, x.f32, vectors[0], vectors[1], true, y.f32);
    start_sums(got);
    start_sums(expected);
    kernels->bf16->norm_backward_sums(rows(shape), x.bf16, &relu, dy.bf16, vectors[2], got[0],
                                      got[1]);
    kernels->norm_backward_sums(&area, x.f32, out, dy.f32, vectors[2], expected[0], expected[1]);
    check_sums(shape, got, expected);

    kernels->norm_backward_apply(&area, x.f32, out, dy.f32, vectors[2], vectors[3], vectors[4],
                                 vectors[5], want);
    memcpy(made.bf16, x.bf16, count_of(shape) * sizeof(uint16_t)); /* in place, as the backend */
    kernels->bf16->norm_backward_apply(rows(shape), made.bf16, &relu, dy.bf16, &dx_of, made.bf16);
    check_made(kernels, shape);
}

static void check_norm_add_backward(const struct cpu_kernels *kernels, const struct shape *shape,
                                    bool has_relu)
{
    const struct cpu_area area = area_of(kernels, shape);
    double got[2][CHANNELS_MOST], expected[2][CHANNELS_MOST];

    set_all(kernels, shape);
    memcpy(want, dy.f32, sizeof want);
    memcpy(made.bf16, dy.bf16, count_of(shape) * sizeof(uint16_t));
    start_sums(got);
    start_sums(expected);
    kernels->bf16->norm_add_backward_sums(rows(shape), x.bf16, has_relu ? other.bf16 : NULL,
                                          made.bf16, vectors[2], got[0], got[1]);
    kernels->residual->norm_add_backward_sums(&area, x.f32, has_relu ? other.f32 : NULL, want,
                                              vectors[2], expected[0], expected[1]);
    check_sums(shape, got, expected);
    check_made(kernels, shape);
}

static void check_elements(const struct cpu_kernels *kernels, const struct shape *shape)
{
    const size_t count = count_of(shape),
                 size = (size_t)area_of(kernels, shape).blocks * kernels->block * rows_of(shape);

    set_all(kernels, shape);
    for (int relu = 0; relu < 2; relu++) {
        kernels->residual->add(x.f32, other.f32, relu != 0, size, want);
        kernels->bf16->add(x.bf16, other.bf16, relu != 0, count, made.bf16);
        check_made(kernels, shape);
    }
    kernels->relu(x.f32, size, want);
    kernels->bf16->relu(x.bf16, count, made.bf16);
    check_made(kernels, shape);
    kernels->relu_backward(x.f32, dy.f32, size, want);
    kernels->bf16->relu_backward(x.bf16, dy.bf16, count, made.bf16);
    check_made(kernels, shape);
}

static void check_max_pool(const struct cpu_kernels *kernels, const struct shape *shape,
                           uint32_t kernel, uint32_t stride, uint32_t pad)
{
    static uint8_t best[MOST], want_best[MOST];
    const struct cpu_area area = area_of(kernels, shape);
    const struct cpu_pixels in = pixels(shape);
    const struct shape out = {shape->images, shape->channels,
                              (shape->height + 2 * pad - kernel) / stride + 1,
                              (shape->width + 2 * pad - kernel) / stride + 1};
    const struct cpu_pool_shape pool = {kernel, stride, pad, out.height, out.width};

    set_all(kernels, shape);
    made.bf16[count_of(&out)] = GUARD;
    best[count_of(&out)] = 77;
    kernels->max_pool(&area, &pool, x.f32, want, want_best);
    kernels->bf16_pool->max_pool(&in, &pool, x.bf16, made.bf16, best);
    check_made(kernels, &out);
    CHECK_EQ(best[count_of(&out)], 77);
    for (size_t i = 0; i < count_of(&out); i++)
        CHECK_EQ(best[i], want_best[blocked_at(kernels, &out, i / out.channels, i % out.channels)]);

    set(kernels, &out, &dy);
    made.bf16[count_of(shape)] = GUARD;
    kernels->max_pool_backward(&area, &pool, want_best, dy.f32, want);
    kernels->bf16_pool->max_pool_backward(&in, &pool, best, dy.bf16, made.bf16);
    check_made(kernels, shape);
}

static void check_avg_pool(const struct cpu_kernels *kernels, const struct shape *shape)
{
    const struct cpu_area area = area_of(kernels, shape);
    const struct cpu_pixels in = pixels(shape);
    const struct shape out = {shape->images, shape->channels, 1, 1};

    set_all(kernels, shape);
    made.bf16[count_of(&out)] = GUARD;
    kernels->residual->avg_pool(&area, x.f32, want);
    kernels->bf16_pool->avg_pool(&in, x.bf16, made.bf16);
    check_made(kernels, &out);
    set(kernels, &out, &dy);
    made.bf16[count_of(shape)] = GUARD;
    kernels->residual->avg_pool_backward(&area, dy.f32, want);
    kernels->bf16_pool->avg_pool_backward(&in, dy.bf16, made.bf16);
    check_made(kernels, shape);
}

/* pack and unpack between both forms; pack rounds. */
static void check_pack(const struct cpu_kernels *kernels, const struct shape *shape)
{
    const struct cpu_area area = area_of(kernels, shape);
    const size_t size = (size_t)area.blocks * kernels->block * rows_of(shape);

    set_all(kernels, shape);
    for (size_t i = 0; i < size; i++)
        want[i] = x.f32[i] * 1.01F;
    kernels->bf16->pack(&area, shape->channels, want, made.bf16);
    check_made(kernels, shape);
    memset(made.f32, 0x55, sizeof made.f32);
    kernels->bf16->unpack(&area, shape->channels, x.bf16, made.f32);
    CHECK(memcmp(made.f32, x.f32, size * sizeof(float)) == 0);
    CHECK_EQ(half_float_bits(made.f32[size]), 0x55555555U);
}

static void check_steps(const struct cpu_kernels *kernels, const struct shape *shape, uint32_t step)
{
    const struct cpu_pixels in = pixels(shape);
    size_t count = 0;

    set_all(kernels, shape);
    memset(made.bf16, 0x55, sizeof made.bf16);
    kernels->bf16_pool->gather(&in, step, x.bf16, y.bf16);
    kernels->bf16_pool->scatter(&in, step, y.bf16, made.bf16);
    for (size_t i = 0; i < count_of(shape); i++) {
        const size_t row = i / shape->channels;
        const bool is_read =
            row / shape->width % shape->height % step == 0 && row % shape->width % step == 0;

        CHECK_EQ(made.bf16[i], is_read ? x.bf16[i] : 0);
        if (is_read)
            CHECK_EQ(y.bf16[count++], x.bf16[i]);
    }
    CHECK_EQ(y.bf16[count], 0);
    CHECK_EQ(made.bf16[count_of(shape)], 0x5555);
}

/* Ties, NaNs, infinities, the smallest numbers. */
static void check_rounding(const struct cpu_kernels *kernels)
{
    static const uint32_t special[] = {0x3f808000U, 0x3f818000U, 0x3f808001U, 0x7f800000U,
                                       0xff800000U, 0x7f800001U, 0xffc12345U, 0x7f7fffffU,
                                       0x00000001U, 0x80007fffU, 0x00008001U, 0x80000000U};

    for (size_t n = 0; n < 70; n++) {
        for (size_t i = 0; i < n; i++)
            want[i] = half_bits_float(special[(i + n) % (sizeof special / sizeof special[0])]);
        made.bf16[n] = GUARD;
        want[n] = 3.0F;
        kernels->bf16->narrow(want, n, made.bf16);
        CHECK_EQ(made.bf16[n], GUARD);
        for (size_t i = 0; i < n; i++)
            CHECK_EQ(made.bf16[i], half_bf16_from(want[i]));
        kernels->bf16->widen(made.bf16, n, want);
        for (size_t i = 0; i < n; i++)
            CHECK_EQ(half_float_bits(want[i]), (uint32_t)made.bf16[i] << 16);
        CHECK(want[n] == 3.0F);
    }
}

/* A NaN passes through a norm with a ReLU and wins in a pool; an element that is rounded to 0 gets
 * no gradient. */
static void check_edges(const struct cpu_kernels *kernels)
{
    const struct shape shape = {1, 21, 2, 2}, pooled = {1, 21, 1, 1};
    const struct cpu_pixels in = pixels(&shape);
    const struct cpu_area area = area_of(kernels, &shape);
    const struct cpu_pool_shape pool = {2, 2, 0, 1, 1};
    const struct cpu_norm_relu relu = {vectors[0], vectors[1]};
    const struct cpu_norm_dx dx_of = {vectors[2], vectors[3], vectors[4], vectors[5]};

    set_all(kernels, &shape);
    for (size_t c = 0; c < shape.channels; c++)
        x.bf16[c + shape.channels] = 0x7fc0;
    kernels->bf16->norm_apply(rows(&shape), x.bf16, vectors[0], vectors[1], &none, true, made.bf16);
    kernels->bf16_pool->max_pool(&in, &pool, x.bf16, y.bf16, NULL);
    for (size_t c = 0; c < shape.channels; c++)
        x.f32[blocked_at(kernels, &shape, 1, c)] = NAN;
    kernels->max_pool(&area, &pool, x.f32, want, NULL);
    for (size_t c = 0; c < shape.channels; c++) {
        CHECK(isnan(half_bf16_to(made.bf16[c + shape.channels])));
        CHECK(isnan(half_bf16_to(y.bf16[c])));
        CHECK(isnan(want[blocked_at(kernels, &pooled, 0, c)]));
        x.bf16[c] = half_bf16_from(1.0F);
        dy.bf16[c] = half_bf16_from(1.0F);
        vectors[0][c] = c % 2 == 0 ? 0x1p-134F : 0x1.02p-134F;
        vectors[1][c] = vectors[4][c] = vectors[5][c] = 0.0F;
        vectors[3][c] = 1.0F;
    }
    kernels->bf16->norm_apply(rows(&pooled), x.bf16, vectors[0], vectors[1], &none, true,
                              made.bf16);
    kernels->bf16->norm_backward_apply(rows(&pooled), x.bf16, &relu, dy.bf16, &dx_of, y.bf16);
    for (size_t c = 0; c < shape.channels; c++) {
        CHECK_EQ(made.bf16[c] != 0, c % 2 == 1);
        CHECK(half_bf16_to(y.bf16[c]) == (c % 2 == 1 ? 1.0F : 0.0F));
    }
}

static void check_table(const struct cpu_kernels *kernels)
{
    for (size_t i = 0; i < SHAPES; i++) {
        const struct shape *shape = &shapes[i];

        check_norm_sums(kernels, shape);
        for (int relu = 0; relu < 2; relu++) {
            check_norm(kernels, shape, relu != 0);
            check_norm_backward(kernels, shape, relu != 0);
            check_norm_add_backward(kernels, shape, relu != 0);
        }
        check_elements(kernels, shape);
        check_avg_pool(kernels, shape);
        check_pack(kernels, shape);
        for (uint32_t step = 1; step < 4; step++)
            check_steps(kernels, shape, step);
        check_max_pool(kernels, shape, 1, 1, 0);
        if (shape->height < 2)
            continue;
        check_max_pool(kernels, shape, 2, 2, 0);
        check_max_pool(kernels, shape, 2, 1, 1);
        check_max_pool(kernels, shape, 3, 2, 1);
        check_max_pool(kernels, shape, 2, 3, 0);
    }
    check_rounding(kernels);
    check_edges(kernels);
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
