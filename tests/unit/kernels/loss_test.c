/* kernel_loss_ref against PyTorch's values, against sums in long double, and at its edges. */
#include "kernels/layers.h"

#include <math.h>

#include "tests/unit/kernels/kernels_values.h"
#include "tests/unit/kernels/oracle.h"

#define STRIDE 8

static struct kernel_loss_row rows[64];

TEST(as_pytorch)
{
    for (size_t k = 0; k < sizeof loss_values / sizeof loss_values[0]; k++) {
        const struct kernel_loss loss = {.rows = LOSS_ROWS,
                                         .classes = LOSS_CLASSES,
                                         .stride = LOSS_CLASSES,
                                         .labels_are_i64 = true,
                                         .smoothing = loss_values[k].smoothing,
                                         .grad_scale = 1.0F};
        struct kernel_loss_result result;
        float grads[LOSS_ROWS * LOSS_CLASSES];

        kernel_loss_ref(&loss, loss_logits, loss_labels, NULL, grads, rows, &result);
        CHECK_NEAR(result.loss_sum, loss_values[k].sum, 1e-6); /* smoothing is an f32 */
        CHECK_EQ(result.top1, LOSS_TOP1);
        CHECK_EQ(result.top5, LOSS_TOP5);
        for (size_t i = 0; i < LOSS_ROWS * LOSS_CLASSES; i++)
            CHECK_NEAR(grads[i], loss_values[k].grads[i], 3e-8);
    }
}

/* One row in long double, by the definition: -sum of target * log p. */
static long double oracle_row(const union oracle_values *logits, enum kernel_type type, size_t at,
                              uint32_t classes, uint32_t label, double smoothing, double *grads)
{
    long double sum = 0.0L, loss = 0.0L;

    for (uint32_t c = 0; c < classes; c++)
        sum += expl((long double)oracle_get(logits, type, at + c));
    for (uint32_t c = 0; c < classes; c++) {
        const long double target =
            (c == label ? 1.0L - (long double)smoothing : 0.0L) + (long double)smoothing / classes;
        const long double p = expl((long double)oracle_get(logits, type, at + c)) / sum;

        loss -= target * logl(p);
        grads[c] = (double)(p - target);
    }
    return loss;
}

static void check_against_oracle(const struct kernel_loss *loss, uint32_t seed)
{
    static union oracle_values logits, out;
    static double grads[2000];
    const float scale = 1024.0F;
    struct kernel_loss_result result;
    long double sum = 0.0L;
    int32_t labels[64];
    double factor = (double)loss->grad_scale * (double)scale / loss->rows;

    oracle_random(&logits, loss->type, (size_t)loss->rows * loss->stride, 6.0, seed);
    oracle_poison(&out);
    for (uint32_t i = 0; i < loss->rows; i++) {
        labels[i] = (int32_t)((i * 7 + seed) % loss->classes);
        for (uint32_t c = loss->classes; c < loss->stride; c++) /* must not be read */
            values_set(&logits, loss->type, (size_t)i * loss->stride + c, NAN);
    }
    kernel_loss_ref(loss, &logits, labels, &scale, &out, rows, &result);
    for (uint32_t i = 0; i < loss->rows; i++) {
        const size_t at = (size_t)i * loss->stride;

        sum += oracle_row(&logits, loss->type, at, loss->classes, (uint32_t)labels[i],
                          (double)loss->smoothing, grads);
        for (uint32_t c = 0; c < loss->classes; c++)
            CHECK_NEAR(oracle_get(&out, loss->grad_type, at + c),
                       oracle_round(grads[c] * factor, loss->grad_type),
                       fabs(factor) * (loss->grad_type == KERNEL_F32 ? 2e-7 : 5e-3));
        for (uint32_t c = loss->classes; c < loss->stride; c++)
            CHECK(oracle_get(&out, loss->grad_type, at + c) == 0.0);
    }
    CHECK_NEAR(result.loss_sum, (double)sum, 1e-12 * loss->rows * 10);
    oracle_check_poison(&out, loss->grad_type, (size_t)loss->rows * loss->stride);
}

TEST(every_shape_and_type)
{
    static const uint32_t shapes[][3] = {{1, 1, 4},     {3, 10, 16},   {40, 10, 10},
                                         {2, 255, 256}, {3, 257, 260}, {2, 1000, 1000}};

    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++)
            for (enum kernel_type grad_type = KERNEL_F32; grad_type <= KERNEL_BF16; grad_type++)
                check_against_oracle(&(struct kernel_loss){.rows = shapes[s][0],
                                                           .classes = shapes[s][1],
                                                           .stride = shapes[s][2],
                                                           .type = type,
                                                           .grad_type = grad_type,
                                                           .smoothing = s % 2 ? 0.1F : 0.0F,
                                                           .grad_scale = 0.5F},
                                     (uint32_t)s + 1);
}

static struct kernel_loss_result look(const float *logits, int32_t label, uint32_t classes)
{
    const struct kernel_loss loss = {.rows = 1, .classes = classes, .stride = classes};
    struct kernel_loss_result result;

    kernel_loss_ref(&loss, logits, &label, NULL, NULL, rows, &result);
    return result;
}

/* Huge scores do not overflow; scores far below the maximum underflow to exactly 0. */
TEST(extreme_scores)
{
    const float huge[3] = {3e38F, -3e38F, 0.0F}, equal[3] = {-1e30F, -1e30F, -1e30F},
                masked[3] = {-INFINITY, 1.0F, 1.0F};

    CHECK(look(huge, 0, 3).loss_sum == 0.0);
    CHECK_NEAR(look(huge, 2, 3).loss_sum, (double)3e38F, 1e20);
    CHECK_NEAR(look(equal, 1, 3).loss_sum, log(3.0), 1e-15);
    CHECK_NEAR(look(masked, 1, 3).loss_sum, log(2.0), 1e-15);
}

TEST(ties_go_to_the_lower_class)
{
    const float scores[8] = {1, 3, 3, 3, 3, 3, 3, 0};

    CHECK_EQ(look(scores, 1, 8).top1, 1);
    CHECK_EQ(look(scores, 2, 8).top1, 0);
    CHECK_EQ(look(scores, 5, 8).top5, 1);
    CHECK_EQ(look(scores, 6, 8).top5, 0);
    CHECK_EQ(look(scores, 0, 8).top5, 0);
}

TEST(nan_is_never_right)
{
    const float own[3] = {NAN, 1.0F, 2.0F}, other[3] = {5.0F, NAN, 2.0F};

    CHECK(isnan(look(own, 0, 3).loss_sum) && look(own, 0, 3).top5 == 0);
    CHECK(isnan(look(other, 0, 3).loss_sum));
    CHECK_EQ(look(other, 0, 3).top1, 0); /* a NaN counts as higher */
    CHECK_EQ(look(other, 0, 3).top5, 1);
}

TEST(bad_label_is_a_nan_and_reads_nothing)
{
    static const int32_t bad[] = {-1, 3, 1000000, INT32_MIN};
    const struct kernel_loss loss = {.rows = 1, .classes = 3, .stride = 3, .grad_scale = 1.0F};
    const float scores[3] = {1, 2, 3};

    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        struct kernel_loss_result result;
        float grads[3] = {0};

        kernel_loss_ref(&loss, scores, &bad[k], NULL, grads, rows, &result);
        CHECK(isnan(result.loss_sum) && result.top1 == 0 && result.top5 == 0);
        CHECK(isnan(grads[0]) && isnan(grads[1]) && isnan(grads[2]));
    }
}

TEST_MAIN
