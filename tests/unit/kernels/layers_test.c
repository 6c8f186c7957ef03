/* The references of kernels/layers.h except the loss, against PyTorch's values and plain
 * definitions. */
#include "kernels/layers.h"

#include <math.h>
#include <stdlib.h>

#include "tests/unit/kernels/kernels_values.h"
#include "tests/unit/kernels/oracle.h"

static union oracle_values x, y, dy, dx;

#define ALL_TYPES(type) for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++)

static void same(double actual, double expected)
{
    if (isnan(expected))
        CHECK(isnan(actual));
    else
        CHECK(actual == expected);
}

/* Ties, a NaN, padding. Results are bit-identical, since the values are small whole numbers. */
TEST(max_pool_as_pytorch)
{
    for (size_t k = 0; k < sizeof pool_values / sizeof pool_values[0]; k++) {
        const struct pool_values *v = &pool_values[k];
        const struct kernel_pool pool = {.images = PT_N,
                                         .height = PT_H,
                                         .width = PT_W,
                                         .channels = PT_C,
                                         .kernel = v->kernel,
                                         .stride = v->stride,
                                         .pad = v->pad,
                                         .out_height = v->out_height,
                                         .out_width = v->out_width};
        const size_t out = (size_t)PT_N * v->out_height * v->out_width * PT_C;
        uint8_t best[PT_N * PT_H * PT_W * PT_C + 1];

        oracle_poison(&y);
        oracle_poison(&dx);
        memset(best, 0xee, sizeof best);
        for (size_t i = 0; i < out; i++)
            dy.f32[i] = (float)(i + 1);
        kernel_max_pool_ref(&pool, pool_x, &y, best);
        kernel_max_pool_backward_ref(&pool, &dy, best, &dx);
        for (size_t i = 0; i < out; i++)
            same((double)y.f32[i], (double)v->y[i]);
        for (size_t i = 0; i < PT_N * PT_H * PT_W * PT_C; i++)
            same((double)dx.f32[i], (double)v->dx[i]);
        CHECK_EQ(best[out], 0xee);
        oracle_check_poison(&y, KERNEL_F32, out);
        oracle_check_poison(&dx, KERNEL_F32, PT_N * PT_H * PT_W * PT_C);
    }
}

TEST(max_pool_of_halves_is_exact)
{
    const struct kernel_pool shape = {.images = 2,
                                      .height = 7,
                                      .width = 5,
                                      .channels = 12,
                                      .kernel = 3,
                                      .stride = 2,
                                      .pad = 1,
                                      .out_height = 4,
                                      .out_width = 3};
    const size_t out = 2 * 4 * 3 * 12;

    ALL_TYPES(type)
    {
        struct kernel_pool pool = shape;
        uint8_t best[2 * 4 * 3 * 12];

        pool.type = type;
        oracle_random(&x, type, 2 * 7 * 5 * 12, 4.0, 31);
        oracle_poison(&y);
        kernel_max_pool_ref(&pool, &x, &y, best);
        for (size_t i = 0; i < out; i++) { /* from the stored index back to the value */
            const long row = (long)(i / 12 / 3 % 4) * 2 + best[i] / 3 - 1;
            const long column = (long)(i / 12 % 3) * 2 + best[i] % 3 - 1;
            const size_t image = i / 12 / 3 / 4;

            CHECK(row >= 0 && row < 7 && column >= 0 && column < 5);
            CHECK(oracle_get(&y, type, i) ==
                  oracle_get(&x, type,
                             ((image * 7 + (size_t)row) * 5 + (size_t)column) * 12 + i % 12));
        }
        oracle_check_poison(&y, type, out);
    }
}

TEST(avg_pool_is_the_mean)
{
    const uint32_t n = 3, pixels = 49, channels = 20;

    ALL_TYPES(type)
    {
        const double tolerance = type == KERNEL_F32 ? 3e-6 : type == KERNEL_F16 ? 1.1e-3 : 9e-3;

        oracle_random(&x, type, (size_t)n * pixels * channels, 2.0, 41);
        oracle_poison(&y);
        oracle_poison(&dx);
        kernel_avg_pool_ref(&x, &y, type, n, pixels, channels);
        kernel_avg_pool_backward_ref(&y, &dx, type, n, pixels, channels);
        for (size_t i = 0; i < (size_t)n * channels; i++) {
            double sum = 0.0;

            for (size_t p = pixels; p-- > 0;)
                sum += oracle_get(&x, type, (i / channels * pixels + p) * channels + i % channels);
            CHECK_NEAR(oracle_get(&y, type, i), sum / pixels, tolerance);
            for (size_t p = 0; p < pixels; p++)
                CHECK(
                    oracle_get(&dx, type, (i / channels * pixels + p) * channels + i % channels) ==
                    oracle_round((double)(float)(oracle_get(&y, type, i) / pixels), type));
        }
        oracle_check_poison(&y, type, (size_t)n * channels);
        oracle_check_poison(&dx, type, (size_t)n * pixels * channels);
    }
}

static const float means[] = {0.485F, 0.456F, 0.406F, 0.0F},
                   stds[] = {0.229F, 0.224F, 0.225F, 1.0F};

/* Four images of 64 pixels and three channels. */
static void check_bytes(const struct kernel_images *images, const uint8_t *bytes)
{
    const enum kernel_type type = images->type;
    const size_t stored = images->stored_channels;

    oracle_poison(&y);
    kernel_images_ref(images, bytes, &y);
    for (size_t i = 0; i < 256; i++) {
        for (size_t c = 0; c < 3; c++) {
            const size_t at = images->is_planar ? (i / 64 * 3 + c) * 64 + i % 64 : i * 3 + c;
            const float expected = ((float)bytes[at] / 255.0F - means[c]) / stds[c];

            CHECK(oracle_get(&y, type, i * stored + c) == oracle_round((double)expected, type));
        }
        for (size_t c = 3; c < stored; c++)
            CHECK(oracle_get(&y, type, i * stored + c) == 0.0);
    }
    oracle_check_poison(&y, type, 256 * stored);
}

/* Every byte value gives the same bits as torchvision's ToTensor and Normalize. */
TEST(images_of_bytes)
{
    uint8_t bytes[256 * 3];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i / 3 + i % 3 * 85);
    ALL_TYPES(type)
    {
        struct kernel_images images = {.images = 4,
                                       .height = 8,
                                       .width = 8,
                                       .in_channels = 3,
                                       .out_channels = 3,
                                       .stored_channels = 4,
                                       .from_bytes = true,
                                       .type = type};

        memcpy(images.mean, means, sizeof means);
        memcpy(images.std, stds, sizeof stds);
        check_bytes(&images, bytes);
        images.is_planar = true;
        check_bytes(&images, bytes);
        images.stored_channels = 8;
        check_bytes(&images, bytes);
    }
}

/* Without a mean the value is unchanged, and one channel becomes three equal channels. */
TEST(images_of_floats)
{
    struct kernel_images images = {.images = 2,
                                   .height = 3,
                                   .width = 5,
                                   .in_channels = 1,
                                   .out_channels = 3,
                                   .stored_channels = 4,
                                   .is_planar = true,
                                   .std = {1, 1, 1, 1}};
    const uint32_t pixels = 15;

    oracle_random(&x, KERNEL_F32, 2 * 15 * 4, 1.0, 51);
    oracle_poison(&y);
    kernel_images_ref(&images, &x, &y);
    for (size_t i = 0; i < 2 * pixels; i++)
        for (size_t c = 0; c < 4; c++)
            CHECK(y.f32[i * 4 + c] == (c < 3 ? x.f32[i] : 0.0F));
    images.in_channels = images.out_channels = 4;
    kernel_images_ref(&images, &x, &y);
    for (size_t i = 0; i < 2 * pixels; i++)
        for (size_t c = 0; c < 4; c++)
            CHECK(y.f32[i * 4 + c] == x.f32[(i / pixels * 4 + c) * pixels + i % pixels]);
    images.is_planar = false;
    kernel_images_ref(&images, &x, &y);
    for (size_t i = 0; i < 2 * pixels * 4; i++)
        CHECK(y.f32[i] == x.f32[i]);
    oracle_check_poison(&y, KERNEL_F32, 2 * pixels * 4);
}

TEST(columns_in_double)
{
    static const uint32_t shapes[][2] = {{0, 4}, {1, 8}, {37, 12}, {700, 24}, {3000, 16}};

    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        ALL_TYPES(type)
        {
            const uint32_t rows = shapes[s][0], channels = shapes[s][1];

            oracle_random(&x, type, (size_t)rows * channels, 3.0, 61);
            oracle_poison(&y);
            kernel_columns_ref(&x, type, rows, channels, &y, KERNEL_F32);
            for (uint32_t c = 0; c < channels; c++) {
                double sum = 0.0;

                for (size_t r = 0; r < rows; r++)
                    sum += oracle_get(&x, type, r * channels + c);
                CHECK_NEAR(y.f32[c], sum, 2e-6 * sqrt(rows) + 1e-7 * fabs(sum));
            }
            oracle_check_poison(&y, KERNEL_F32, channels);
        }
}

/* A million ones and more: f32 alone would stop at 2^24 halves of it. */
TEST(columns_lose_nothing)
{
    const size_t rows = 3000000;
    uint16_t *ones = malloc(rows * 4 * sizeof *ones);
    float sums[4];

    CHECK(ones != NULL);
    for (size_t i = 0; i < rows * 4; i++)
        ones[i] = half_f16_from(7.0F);
    kernel_columns_ref(ones, KERNEL_F16, rows, 4, sums, KERNEL_F32);
    free(ones);
    CHECK(sums[0] == 21000000.0F && sums[3] == 21000000.0F);
}

/* A linear layer gives the same output from [c][h][w] with PyTorch's weights as from [h][w][c] with
 * the stored weights. */
TEST(flatten_by_its_weights)
{
    const struct kernel_flatten flatten = {
        .channels = 3, .padded_channels = 4, .height = 2, .width = 5};
    float weights[2 * 30], stored[2 * 40], back[2 * 30], value[30];

    oracle_random(&x, KERNEL_F32, 90, 1.0, 71);
    memcpy(weights, x.f32, sizeof weights);
    memcpy(value, x.f32 + 60, sizeof value);
    kernel_flatten_pack(&flatten, 2, weights, stored);
    kernel_flatten_unpack(&flatten, 2, stored, back);
    CHECK_BYTES(back, weights, sizeof weights);
    for (size_t o = 0; o < 2; o++) {
        double expected = 0.0, actual = 0.0;

        for (size_t i = 0; i < 30; i++)
            expected += (double)value[i] * (double)weights[o * 30 + i];
        for (size_t i = 0; i < 40; i++) {
            const size_t c = i % 4, pixel = i / 4;

            CHECK(c < 3 || stored[o * 40 + i] == 0.0F);
            if (c < 3)
                actual += (double)value[c * 10 + pixel] * (double)stored[o * 40 + i];
        }
        CHECK_NEAR(actual, expected, 1e-12);
    }
}

TEST_MAIN
