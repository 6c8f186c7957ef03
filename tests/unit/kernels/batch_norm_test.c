/* The references of kernels/batch_norm.h against PyTorch's values, and against two-pass sums in
 * double where f32 is not precise enough. */
#include "kernels/norm_pool.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/values.h"
#include "tests/unit/kernels/kernels_values.h"
#include "tests/unit/kernels/oracle.h"

#define COUNT (PT_N * PT_H * PT_W * PT_C)
#define ROWS (PT_N * PT_H * PT_W)

static const struct kernel_norm like_pytorch = {
    .rows = ROWS, .channels = PT_C, .eps = 1e-5F, .momentum = 0.1F, .relu = true};

static void check_near(const float *actual, const float *expected, size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++)
        CHECK_NEAR(actual[i], expected[i], tolerance);
}

TEST(training_as_pytorch)
{
    const struct kernel_norm *norm = &like_pytorch;
    double sums[2 * PT_C + 1];
    float mean[PT_C], var[PT_C], stats[KERNEL_NORM_STATS * PT_C], coefs[KERNEL_NORM_COEFS * PT_C];
    float y[COUNT], dx[COUNT], dz[COUNT], dgamma[PT_C], dbeta[PT_C];
    uint8_t mask[COUNT / 4];

    memcpy(mean, norm_mean_before, sizeof mean);
    memcpy(var, norm_var_before, sizeof var);
    CHECK_EQ(kernel_norm_mask_bytes(norm), sizeof mask);
    kernel_norm_sums_ref(norm, norm_x, sums);
    kernel_norm_finish_ref(norm, sums, norm_gamma, norm_beta, mean, var, stats);
    kernel_norm_apply_ref(norm, norm_x, stats, norm_z, y, mask);
    check_near(mean, norm_mean_after, PT_C, 1e-6);
    check_near(var, norm_var_after, PT_C, 1e-6);
    check_near(y, norm_y, COUNT, 1e-4); /* x near 50 is an f32: off by 2e-6, over 0.1 */
    kernel_norm_backward_sums_ref(norm, norm_x, norm_dy, mask, stats, sums);
    kernel_norm_backward_finish_ref(norm, sums, sums, stats, dgamma, dbeta, coefs);
    kernel_norm_backward_apply_ref(norm, norm_x, norm_dy, mask, stats, coefs, dx, dz);
    check_near(dgamma, norm_dgamma, PT_C, 1e-3);
    check_near(dbeta, norm_dbeta, PT_C, 2e-6);
    check_near(dx, norm_dx, COUNT, 2e-3);
    check_near(dz, norm_dz, COUNT, 0.0);
}

TEST(evaluation_as_pytorch)
{
    struct kernel_norm norm = like_pytorch;
    float stats[KERNEL_NORM_STATS * PT_C], y[COUNT];

    norm.relu = false;
    kernel_norm_running_ref(&norm, norm_gamma, norm_beta, norm_mean_before, norm_var_before, stats);
    kernel_norm_apply_ref(&norm, norm_x, stats, NULL, y, NULL);
    for (size_t i = 0; i < COUNT; i++)
        CHECK_NEAR(y[i], norm_y_evaluation[i], 1e-6 * (1.0 + fabs((double)norm_y_evaluation[i])));
}

/* Adding the sums of two ranks with different batch sizes gives the same statistics as one rank
 * with all rows. */
TEST(sums_of_two_ranks)
{
    struct kernel_norm first = like_pytorch, second = like_pytorch;
    double a[2 * PT_C + 1], b[2 * PT_C + 1], all[2 * PT_C + 1];

    first.rows = 7;
    second.rows = ROWS - 7;
    kernel_norm_sums_ref(&first, norm_x, a);
    kernel_norm_sums_ref(&second, norm_x + (size_t)7 * PT_C, b);
    kernel_norm_sums_ref(&like_pytorch, norm_x, all);
    for (size_t i = 0; i < 2 * PT_C + 1; i++)
        CHECK_NEAR((a[i] + b[i]) / all[i], 1.0, 1e-5);
    CHECK(a[2 * PT_C] + b[2 * PT_C] == ROWS);
    for (size_t c = 0; c < PT_C; c++) { /* what remains after subtracting the mean */
        const double mean = all[c] / ROWS, both = (a[c] + b[c]) / ROWS;

        CHECK_NEAR((a[PT_C + c] + b[PT_C + c]) / ROWS - both * both,
                   all[PT_C + c] / ROWS - mean * mean, 2e-6);
    }
}

/* A mean of 1000 and a deviation of 0.01, over 12,000 rows: sums of x^2 in f32 would lose the
 * variance. */
TEST(mean_far_above_the_deviation)
{
    const struct kernel_norm norm = {
        .rows = 12000, .channels = 4, .eps = 1e-5F, .momentum = 1.0F, .relu = false};
    float *x = malloc(norm.rows * 4 * sizeof *x), *y = malloc(norm.rows * 4 * sizeof *y);
    float ones[4] = {1, 1, 1, 1}, zeros[4] = {0}, mean[4], var[4], stats[KERNEL_NORM_STATS * 4];
    double sums[9], sum = 0.0, squares = 0.0, expected;
    uint32_t seed = 5;

    CHECK(x != NULL && y != NULL);
    for (size_t i = 0; i < norm.rows * 4; i++) {
        seed = seed * 1664525U + 1013904223U;
        x[i] = 1000.0F + 0.01F * ((float)(seed >> 8) * 0x1p-23F - 1.0F);
    }
    for (size_t r = 0; r < norm.rows; r++)
        sum += (double)x[r * 4];
    for (size_t r = 0; r < norm.rows; r++)
        squares += pow((double)x[r * 4] - sum / (double)norm.rows, 2.0);
    expected = squares / (double)(norm.rows - 1); /* unbiased */
    kernel_norm_sums_ref(&norm, x, sums);
    kernel_norm_finish_ref(&norm, sums, ones, zeros, mean, var, stats);
    CHECK_NEAR(mean[0], sum / (double)norm.rows, 5e-5);
    CHECK_NEAR((double)var[0] / expected, 1.0, 1e-4);
    kernel_norm_apply_ref(&norm, x, stats, NULL, y, NULL);
    for (size_t r = 0; r < norm.rows; r++) { /* the mean is an f32: off by 3e-5 */
        const double off =
            ((double)x[r * 4] - sum / (double)norm.rows) / sqrt(squares / (double)norm.rows + 1e-5);

        CHECK_NEAR(y[r * 4], off, 3.1e-5 / sqrt(squares / (double)norm.rows + 1e-5) + 1e-5);
    }
    free(x);
    free(y);
}

/* Half precision: outputs are the rounded f32 results, the mask marks elements that the ReLU
 * passed, and gamma and beta may be halves. */
TEST(halves)
{
    static union oracle_values x, z, y, gamma, beta;
    static float stats[KERNEL_NORM_STATS * 24];
    static uint8_t mask[100 * 24];

    for (enum kernel_type type = KERNEL_F16; type <= KERNEL_BF16; type++) {
        const struct kernel_norm norm = {.rows = 100,
                                         .channels = 24,
                                         .type = type,
                                         .param_type = type,
                                         .eps = 1e-5F,
                                         .relu = true};
        double sums[49];
        float mean[24] = {0}, var[24] = {0};

        oracle_random(&x, type, 2400, 4.0, 81);
        oracle_random(&z, type, 2400, 1.0, 82);
        oracle_random(&gamma, type, 24, 2.0, 83);
        oracle_random(&beta, type, 24, 1.0, 84);
        oracle_poison(&y);
        memset(mask, 0xee, sizeof mask);
        CHECK_EQ(kernel_norm_mask_bytes(&norm), 300);
        kernel_norm_sums_ref(&norm, &x, sums);
        kernel_norm_finish_ref(&norm, sums, &gamma, &beta, mean, var, stats);
        kernel_norm_apply_ref(&norm, &x, stats, &z, &y, mask);
        for (size_t i = 0; i < 2400; i++) {
            const size_t c = i % 24;
            double sum = 0.0, squares = 0.0, out;

            for (size_t r = 0; r < 100; r++)
                sum += oracle_get(&x, type, r * 24 + c) / 100.0;
            for (size_t r = 0; r < 100; r++)
                squares += pow(oracle_get(&x, type, r * 24 + c) - sum, 2.0) / 100.0;
            out = (oracle_get(&x, type, i) - sum) / sqrt(squares + 1e-5) *
                      oracle_get(&gamma, type, c) +
                  oracle_get(&beta, type, c) + oracle_get(&z, type, i);
            out = fmax(out, 0.0);
            CHECK_NEAR(oracle_get(&y, type, i), out,
                       2e-6 + out * (type == KERNEL_F16 ? 0x1p-11 : 0x1p-8));
            CHECK_EQ(mask[i / 8] >> i % 8 & 1, oracle_get(&y, type, i) > 0.0);
        }
        CHECK_EQ(mask[300], 0xee);
        oracle_check_poison(&y, type, 2400);
    }
}

/* In pure 16-bit training, running statistics are f32 values rounded to half precision. */
TEST(running_statistics_are_rounded)
{
    struct kernel_norm norm = like_pytorch;
    float mean[PT_C], var[PT_C], stats[KERNEL_NORM_STATS * PT_C];
    double sums[2 * PT_C + 1];

    norm.stats_type = KERNEL_F16;
    memcpy(mean, norm_mean_before, sizeof mean);
    memcpy(var, norm_var_before, sizeof var);
    kernel_norm_sums_ref(&norm, norm_x, sums);
    kernel_norm_finish_ref(&norm, sums, norm_gamma, norm_beta, mean, var, stats);
    for (size_t c = 0; c < PT_C; c++) {
        CHECK((double)mean[c] == oracle_round((double)mean[c], KERNEL_F16));
        CHECK_NEAR(mean[c], norm_mean_after[c], 4e-3);
        CHECK((double)var[c] == oracle_round((double)var[c], KERNEL_F16));
    }
}

/* One row has no unbiased variance: nothing may be divided by 0. A NaN stays in its channel. */
TEST(one_row_and_a_nan)
{
    const struct kernel_norm norm = {.rows = 1, .channels = 4, .eps = 1e-5F, .momentum = 0.5F};
    const float x[4] = {1, NAN, 3, INFINITY}, ones[4] = {1, 1, 1, 1};
    float mean[4] = {0}, var[4] = {1, 1, 1, 1}, stats[KERNEL_NORM_STATS * 4], y[4];
    double sums[9];

    kernel_norm_sums_ref(&norm, x, sums);
    kernel_norm_finish_ref(&norm, sums, ones, ones, mean, var, stats);
    kernel_norm_apply_ref(&norm, x, stats, NULL, y, NULL);
    CHECK(mean[0] == 0.5F && var[0] == 0.5F && y[0] == 1.0F);
    CHECK(mean[2] == 1.5F && var[2] == 0.5F && y[2] == 1.0F);
    CHECK(isnan(mean[1]) && isnan(var[1]) && isnan(y[1]) && isnan(y[3]));
}

/* The fused kernel equals norm_apply followed by max_pool, with a mask of the ReLU between them; its
 * sums do to the rounding of gradients where windows overlap. A scale of channel 1 is negative. */
TEST(norm_and_pool_as_one)
{
    enum { IMAGES = 2, SIDE = 6, CHANNELS = 8, OUT = 3, IN = IMAGES * SIDE * SIDE * CHANNELS };
    enum { POOLED = IMAGES * OUT * OUT * CHANNELS };
    const struct kernel_norm norm = {
        .rows = IMAGES * SIDE * SIDE, .channels = CHANNELS, .type = KERNEL_F16, .relu = true};
    const struct kernel_pool pool = {.images = IMAGES,
                                     .height = SIDE,
                                     .width = SIDE,
                                     .channels = CHANNELS,
                                     .kernel = 3,
                                     .stride = 2,
                                     .pad = 1,
                                     .out_height = OUT,
                                     .out_width = OUT,
                                     .type = KERNEL_F16};
    uint16_t x[IN], inside[IN], inside_grad[IN], dx[IN], dx_one[IN];
    uint16_t y[POOLED], y_one[POOLED], dy[POOLED], kept[POOLED];
    uint8_t mask[IN / 8], best[POOLED], places[POOLED];
    float stats[KERNEL_NORM_STATS * CHANNELS], coefs[KERNEL_NORM_COEFS * CHANNELS];
    double sums[2 * CHANNELS + 1], sums_one[2 * CHANNELS + 1];
    uint32_t stopped = 0;

    for (size_t i = 0; i < IN; i++)
        x[i] = values_round((float)((i * 37 + i / 11) % 61) / 20.0F - 2.2F, KERNEL_F16);
    for (size_t i = 0; i < POOLED; i++)
        dy[i] = values_round((float)(i % 17) - 8.0F, KERNEL_F16);
    for (size_t c = 0; c < CHANNELS; c++) {
        for (size_t s = 0; s < KERNEL_NORM_STATS; s++)
            stats[s * CHANNELS + c] = 0.5F + 0.1F * (float)((c + s) % 5) - (s == 3 ? 0.8F : 0.0F);
        for (size_t s = 0; s < KERNEL_NORM_COEFS; s++)
            coefs[s * CHANNELS + c] = 0.3F * (float)((c + 2 * s) % 7) - 0.8F;
    }
    stats[KERNEL_NORM_SCALE * CHANNELS + 1] *= -1.0F;
    kernel_norm_apply_ref(&norm, x, stats, NULL, inside, mask);
    kernel_max_pool_ref(&pool, inside, y, best);
    kernel_max_pool_backward_ref(&pool, dy, best, inside_grad);
    kernel_norm_backward_sums_ref(&norm, x, inside_grad, mask, stats, sums);
    kernel_norm_backward_apply_ref(&norm, x, inside_grad, mask, stats, coefs, dx, NULL);

    kernel_norm_pool_ref(&norm, &pool, x, stats, y_one, places, kept);
    kernel_norm_pool_backward_sums_ref(&norm, &pool, kept, dy, places, stats, sums_one);
    kernel_norm_pool_backward_apply_ref(&norm, &pool, x, dy, places, stats, coefs, dx_one);
    CHECK(memcmp(y, y_one, sizeof y) == 0);
    for (size_t i = 0; i < 2 * CHANNELS + 1; i++)
        CHECK_NEAR(sums_one[i], sums[i], 1e-3 * (1.0 + fabs(sums[i])));
    CHECK(memcmp(dx, dx_one, sizeof dx) == 0);
    for (size_t i = 0; i < POOLED; i++)
        stopped += places[i] == KERNEL_NORM_POOL_STOPPED;
    CHECK(stopped > 0 && stopped < POOLED); /* both happen */
}

TEST_MAIN
