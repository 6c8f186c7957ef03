/* The weight gradient of convolutions over few channels, against sums in double. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker/backend/cpu/kernels.h"

static uint32_t state = 1;

static float next_value(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / (float)(1 << 23) - 1.0F;
}

static float *values_new(size_t count)
{
    float *values = aligned_alloc(64, (count * sizeof *values + 63) / 64 * 64);

    CHECK(values != NULL);
    for (size_t i = 0; i < count; i++)
        values[i] = next_value();
    return values;
}

struct shape {
    uint32_t images, channels, in_height, in_width, kernel, stride, pad, out_channels;
};

struct made {
    struct cpu_area area;
    struct cpu_rows_conv conv;
    uint32_t block;
    float *x, *dy, *weights, *bias;
};

static double dy_at(const struct made *made, uint32_t n, uint32_t o, uint32_t y, uint32_t x)
{
    const struct cpu_area *area = &made->area;
    const size_t block = (size_t)n * area->blocks + o / made->block;

    return (double)
        made->dy[((block * area->height + y) * area->width + x) * made->block + o % made->block];
}

/* 0 beyond the border. */
static double x_at(const struct made *made, uint32_t n, uint32_t i, int64_t y, int64_t x)
{
    const struct cpu_rows_conv *conv = &made->conv;

    if (y < 0 || x < 0 || y >= conv->in_height || x >= conv->in_width)
        return 0;
    return (double)
        made->x[(((size_t)n * conv->channels + i) * conv->in_height + (size_t)y) * conv->in_width +
                (size_t)x];
}

static double expected(const struct made *made, uint32_t o, uint32_t i, uint32_t ky, uint32_t kx)
{
    const struct cpu_rows_conv *conv = &made->conv;
    double sum = 0;

    for (uint32_t n = 0; n < made->area.images; n++)
        for (uint32_t y = 0; y < made->area.height; y++)
            for (uint32_t x = 0; x < made->area.width; x++)
                sum += dy_at(made, n, o, y, x) * x_at(made, n, i,
                                                      (int64_t)y * conv->stride + ky - conv->pad,
                                                      (int64_t)x * conv->stride + kx - conv->pad);
    return sum;
}

static void compare(const struct made *made)
{
    const struct cpu_rows_conv *conv = &made->conv;
    size_t at = 0;

    for (uint32_t o = 0; o < conv->out_channels; o++) {
        double bias = 0;

        for (uint32_t i = 0; i < conv->channels; i++)
            for (uint32_t ky = 0; ky < conv->kernel; ky++)
                for (uint32_t kx = 0; kx < conv->kernel; kx++)
                    CHECK_NEAR(made->weights[at++], expected(made, o, i, ky, kx), 1e-3);
        for (uint32_t n = 0; n < made->area.images; n++)
            for (uint32_t y = 0; y < made->area.height; y++)
                for (uint32_t x = 0; x < made->area.width; x++)
                    bias += dy_at(made, n, o, y, x);
        CHECK_NEAR(made->bias[o], bias, 1e-3);
    }
}

static void check(const struct cpu_kernels *kernels, const struct shape *shape)
{
    const uint32_t blocks = (shape->out_channels + kernels->block - 1) / kernels->block;
    struct made made = {
        .area = {.images = shape->images,
                 .blocks = blocks,
                 .height = (shape->in_height + 2 * shape->pad - shape->kernel) / shape->stride + 1,
                 .width = (shape->in_width + 2 * shape->pad - shape->kernel) / shape->stride + 1},
        .conv = {.channels = shape->channels,
                 .in_height = shape->in_height,
                 .in_width = shape->in_width,
                 .kernel = shape->kernel,
                 .stride = shape->stride,
                 .pad = shape->pad,
                 .out_channels = shape->out_channels},
        .block = kernels->block,
    };

    made.x =
        values_new((size_t)shape->images * shape->channels * shape->in_height * shape->in_width);
    made.dy = values_new((size_t)shape->images * blocks * made.area.height * made.area.width *
                         kernels->block);
    made.weights =
        values_new((size_t)shape->out_channels * shape->channels * shape->kernel * shape->kernel);
    made.bias = values_new(shape->out_channels);
    kernels->conv_weights(&made.area, &made.conv, made.x, made.dy, made.weights, made.bias);
    compare(&made);
    kernels->conv_weights(&made.area, &made.conv, made.x, made.dy, made.weights, NULL);
    free(made.x);
    free(made.dy);
    free(made.weights);
    free(made.bias);
}

static void check_all(const struct cpu_kernels *kernels)
{
    static const struct shape shapes[] = {
        {2, 1, 28, 28, 5, 1, 2, 16}, {1, 3, 9, 7, 3, 2, 1, 10}, {3, 2, 5, 5, 1, 1, 0, 8},
        {1, 1, 4, 6, 4, 1, 0, 17},   {2, 1, 7, 7, 7, 3, 3, 5},  {1, 2, 3, 3, 5, 1, 4, 9},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check(kernels, &shapes[i]);
}

TEST(sums_of_every_shape)
{
    check_all(&cpu_kernels_generic);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        check_all(&cpu_kernels_avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        check_all(&cpu_kernels_avx512);
#endif
}

TEST_MAIN
