/* The references of Adam, LARS and Lookahead against their formulas in double, over several steps so
 * that an error in a state grows; at odd sizes, with guards around every buffer. */
#include <math.h>
#include <string.h>

#include "kernels/grad_norm.h"
#include "kernels/half.h"
#include "kernels/optimizer.h"
#include "tests/lib/test.h"
#include "tests/unit/kernels/guard.h"

#define COUNT_MAX (3 * GRAD_NORM_CHUNK + 5)
#define GUARD 8
#define STEPS 6
#define SCALE 1024.0F

static const size_t counts[] = {0, 1, 3, 4, 5, 63, 64, 255, 256, 257, 4095, 4096, 4097, COUNT_MAX};

/* first, second: momentum or slow weights, or exp_avg and exp_avg_sq. */
static struct fixture {
    float grad[COUNT_MAX + 2 * GUARD], master[COUNT_MAX + 2 * GUARD];
    float first[COUNT_MAX + 2 * GUARD], second[COUNT_MAX + 2 * GUARD];
    uint16_t grad_half[COUNT_MAX + 2 * GUARD], half[COUNT_MAX + 2 * GUARD];
} f;

static double param_oracle[COUNT_MAX], first_oracle[COUNT_MAX], second_oracle[COUNT_MAX];
static double grad_oracle[COUNT_MAX]; /* unscaled */

static void set_up(size_t count, uint32_t seed)
{
    random_state = seed;
    memset(&f, GUARD_BYTE, sizeof f);
    for (size_t i = 0; i < count; i++) {
        f.master[GUARD + i] = draw();
        f.first[GUARD + i] = f.second[GUARD + i] = 0.0F;
        param_oracle[i] = (double)f.master[GUARD + i];
        first_oracle[i] = second_oracle[i] = 0.0;
    }
}

static void check_guards(size_t count)
{
    float *const arrays[] = {f.master, f.first, f.second};
    const size_t after = COUNT_MAX + GUARD - count;

    for (size_t a = 0; a < 3; a++) {
        check_guard(arrays[a], GUARD * sizeof(float));
        check_guard(arrays[a] + GUARD + count, after * sizeof(float));
    }
    check_guard(f.half, GUARD * sizeof f.half[0]);
    check_guard(f.half + GUARD + count, after * sizeof f.half[0]);
}

static void make_grads(enum kernel_type type, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float grad = draw() * SCALE;

        f.grad_half[GUARD + i] = half_f16_from(grad);
        f.grad[GUARD + i] = type == KERNEL_F16 ? half_f16_to(f.grad_half[GUARD + i]) : grad;
        grad_oracle[i] = (double)f.grad[GUARD + i] / (double)SCALE;
    }
}

static const void *grads_of(enum kernel_type type)
{
    return type == KERNEL_F16 ? (const void *)(f.grad_half + GUARD) : f.grad + GUARD;
}

static void check_values(size_t count, double tolerance, bool with_second, enum kernel_type half)
{
    check_guards(count);
    for (size_t i = 0; i < count; i++) {
        const float master = f.master[GUARD + i];

        CHECK_NEAR(master, param_oracle[i], tolerance);
        CHECK_NEAR(f.first[GUARD + i], first_oracle[i], tolerance);
        if (with_second)
            CHECK_NEAR(f.second[GUARD + i], second_oracle[i], tolerance);
        if (half != KERNEL_F32)
            CHECK_EQ(f.half[GUARD + i],
                     half == KERNEL_F16 ? half_f16_from(master) : half_bf16_from(master));
    }
}

/* -- Adam -- */

static void adam_oracle(const struct kernel_adam *adam, size_t count, int t)
{
    const double bias1 = 1 - pow(adam->beta1, t), bias2 = 1 - pow(adam->beta2, t);

    for (size_t i = 0; i < count; i++) {
        double *p = &param_oracle[i], *m = &first_oracle[i], *v = &second_oracle[i];
        double g = grad_oracle[i];

        if (adam->is_adamw)
            *p -= adam->lr * adam->weight_decay * *p;
        else
            g += adam->weight_decay * *p;
        *m = adam->beta1 * *m + (1 - adam->beta1) * g;
        *v = adam->beta2 * *v + (1 - adam->beta2) * g * g;
        *p -= adam->lr * (*m / bias1) / (sqrt(*v / bias2) + (double)adam->eps);
    }
}

static void run_adam(struct kernel_adam adam, size_t count, enum kernel_type half, uint32_t seed)
{
    const float scale = SCALE;
    const struct kernel_adam_tensor tensor = {.grad = grads_of(adam.grad_type),
                                              .master = f.master + GUARD,
                                              .exp_avg = f.first + GUARD,
                                              .exp_avg_sq = f.second + GUARD,
                                              .half = half != KERNEL_F32 ? f.half + GUARD : NULL,
                                              .count = count};

    adam.half_type = half;
    set_up(count, seed);
    for (uint32_t applied = 0; applied < STEPS; applied++) {
        make_grads(adam.grad_type, count);
        adam_oracle(&adam, count, (int)applied + 1);
        kernel_adam_ref(&tensor, 1, &adam, &scale, NULL, &applied);
        check_values(count, 3e-6, true, half);
    }
}

TEST(adam_at_every_size)
{
    static const struct kernel_adam rules[] = {
        {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-3F},
        {.lr = 0.05, .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-2F, .weight_decay = 0.1},
        {.lr = 0.05, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-2F, .weight_decay = .3, .is_adamw = 1},
        {.lr = 0.01, .beta1 = 0.0, .beta2 = 0.0, .eps = 1e-1F},
    };
    static const enum kernel_type halves[] = {KERNEL_F32, KERNEL_F16, KERNEL_BF16};

    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            for (size_t types = 0; types < 6; types++) {
                struct kernel_adam adam = rules[r];

                adam.grad_type = types % 2 ? KERNEL_F16 : KERNEL_F32;
                run_adam(adam, counts[c], halves[types / 2], (uint32_t)(r * 100 + c * 7 + types));
            }
}

/* Late in training: the powers of beta are 0, so the bias correction has no effect. */
TEST(adam_far_on)
{
    const struct kernel_adam adam = {.lr = 0.5, .beta1 = 0.5, .beta2 = 0.75, .eps = 1.0F};
    float grad = 2.0F, master = 1.0F, m = 1.0F, v = 3.0F;
    const struct kernel_adam_tensor tensor = {
        .grad = &grad, .master = &master, .exp_avg = &m, .exp_avg_sq = &v, .count = 1};
    const float scale = 1.0F;
    const uint32_t applied = 4000000000U;

    kernel_adam_ref(&tensor, 1, &adam, &scale, NULL, &applied);
    CHECK(m == 1.5F && v == 3.25F);
    CHECK_NEAR(master, 1 - 0.5 * 1.5 / (sqrt(3.25) + 1), 1e-7);
}

/* -- LARS -- */

static double norm_of(const double *values, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += values[i] * values[i];
    return sqrt(sum);
}

static double ratio_oracle(const struct kernel_lars *lars, size_t count)
{
    const double p = norm_of(param_oracle, count), g = norm_of(grad_oracle, count);
    const double below = g + (double)lars->weight_decay * p;

    if (!lars->is_larc)
        return p > 0 && below > 0 ? (double)lars->trust * p / below : 1;
    if (p == 0)
        return 1;
    return g == 0
               ? 0
               : fmin(1, (double)lars->trust * p / (below + (double)lars->eps) / (double)lars->lr);
}

static void lars_oracle(const struct kernel_lars *lars, size_t count, bool adapts)
{
    const double lr = (double)lars->lr, mu = (double)lars->momentum;
    const double ratio = adapts ? ratio_oracle(lars, count) : 1;

    for (size_t i = 0; i < count; i++) {
        double d = ratio * (grad_oracle[i] + (double)lars->weight_decay * param_oracle[i]);

        if (!lars->is_larc)
            d *= lr;
        if (mu > 0)
            first_oracle[i] = mu * first_oracle[i] + d;
        if (mu > 0)
            d = lars->nesterov ? d + mu * first_oracle[i] : first_oracle[i];
        param_oracle[i] -= lars->is_larc ? lr * d : d;
    }
}

static void run_lars(struct kernel_lars lars, size_t count, bool adapts, uint32_t seed)
{
    const float scale = SCALE;
    const struct kernel_lars_tensor tensor = {.grad = grads_of(lars.grad_type),
                                              .master = f.master + GUARD,
                                              .momentum = f.first + GUARD,
                                              .half = lars.half_type != KERNEL_F32 ? f.half + GUARD
                                                                                   : NULL,
                                              .count = count,
                                              .adapts = adapts};

    set_up(count, seed);
    for (int step = 0; step < STEPS; step++) {
        make_grads(lars.grad_type, count);
        lars_oracle(&lars, count, adapts);
        kernel_lars_ref(&tensor, 1, &lars, &scale, NULL);
        check_values(count, 4e-6, false, lars.half_type);
    }
}

TEST(lars_at_every_size)
{
    static const struct kernel_lars rules[] = {
        {.lr = 2.0F, .trust = 0.02F},
        {.lr = 2.0F, .momentum = 0.9F, .weight_decay = 0.05F, .trust = 0.02F},
        {.lr = 0.1F,
         .momentum = 0.9F,
         .weight_decay = 0.1F,
         .trust = 0.02F,
         .eps = 1e-2F,
         .is_larc = 1},
        {.lr = 0.1F, .momentum = 0.9F, .trust = 0.5F, .eps = 1e-8F, .is_larc = 1, .nesterov = 1},
    };

    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            for (size_t types = 0; types < 4; types++) {
                struct kernel_lars lars = rules[r];

                lars.grad_type = types % 2 ? KERNEL_F16 : KERNEL_F32;
                lars.half_type = types / 2 ? KERNEL_BF16 : KERNEL_F32;
                run_lars(lars, counts[c], true, (uint32_t)(r * 100 + c * 7 + types));
                run_lars(lars, counts[c], false, (uint32_t)(r * 100 + c * 7 + types));
            }
}

/* If a norm is zero, Apex does not scale; with the paper's formula a parameter of 0 would stay 0
 * for ever. */
TEST(lars_of_norms_that_are_zero)
{
    static const float scale = 1.0F;

    for (int is_larc = 0; is_larc < 2; is_larc++) {
        struct kernel_lars lars = {.lr = 0.5F, .weight_decay = 0.25F, .trust = 0.5F};
        float grad = 1.0F, master = 0.0F;
        const struct kernel_lars_tensor tensor = {
            .grad = &grad, .master = &master, .count = 1, .adapts = true};

        lars.is_larc = is_larc;
        kernel_lars_ref(&tensor, 1, &lars, &scale, NULL);
        CHECK(master == -0.5F);
        grad = 0.0F;
        master = 2.0F;
        kernel_lars_ref(&tensor, 1, &lars, &scale, NULL);
        CHECK(master == (is_larc ? 2.0F : 1.5F)); /* 0.5 * (0.5 * 2 / 0.5) * 0.25 * 2 */
        lars.weight_decay = 0.0F;
        kernel_lars_ref(&tensor, 1, &lars, &scale, NULL);
        CHECK(master == (is_larc ? 2.0F : 1.5F));
    }
}

/* -- Lookahead -- */

static void lookahead_oracle(const struct kernel_lookahead *lookahead, size_t count, uint32_t t)
{
    const bool joins =
        lookahead->is_paper ? t % lookahead->every == 0 : t > 1 && (t - 1) % lookahead->every == 0;

    for (size_t i = 0; i < count; i++) {
        if (t == 1 && !lookahead->is_paper)
            first_oracle[i] = param_oracle[i];
        if (!joins)
            continue;
        first_oracle[i] += (double)lookahead->alpha * (param_oracle[i] - first_oracle[i]);
        param_oracle[i] = first_oracle[i];
    }
}

static void run_lookahead(const struct kernel_lookahead *lookahead, size_t count, uint32_t seed)
{
    const struct kernel_lookahead_tensor tensor = {.master = f.master + GUARD,
                                                   .slow = f.first + GUARD,
                                                   .half = f.half + GUARD,
                                                   .count = count};
    uint32_t found = 1;

    set_up(count, seed);
    for (uint32_t applied = 0; applied < 3 * STEPS; applied++, found = 1) {
        kernel_lookahead_before_ref(&tensor, 1, lookahead, &found, &applied);
        kernel_lookahead_ref(&tensor, 1, lookahead, &found, &applied); /* a skipped step */
        found = 0;
        kernel_lookahead_before_ref(&tensor, 1, lookahead, &found, &applied);
        for (size_t i = 0; i < count; i++) {
            if (applied == 0 && lookahead->is_paper)
                first_oracle[i] = param_oracle[i];
            f.master[GUARD + i] += 0.125F * (float)(i % 7); /* the other optimizer */
            param_oracle[i] += 0.125 * (double)(i % 7);
        }
        kernel_lookahead_ref(&tensor, 1, lookahead, &found, &applied);
        lookahead_oracle(lookahead, count, applied + 1);
        check_values(count, 1e-5, false, KERNEL_F32);
    }
    for (size_t i = 0; i < count; i++) /* the last step synchronised in every case below */
        CHECK_EQ(f.half[GUARD + i], half_f16_from(f.master[GUARD + i]));
}

TEST(lookahead_takes_its_turns)
{
    static const struct kernel_lookahead rules[] = {
        {.half_type = KERNEL_F16, .is_paper = true, .every = 6, .alpha = 0.5F},
        {.half_type = KERNEL_F16, .is_paper = true, .every = 1, .alpha = 0.3F},
        {.half_type = KERNEL_F16, .is_paper = false, .every = 17, .alpha = 0.5F},
        {.half_type = KERNEL_F16, .is_paper = false, .every = 1, .alpha = 0.8F},
    };

    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            run_lookahead(&rules[r], counts[c], (uint32_t)(r * 100 + c));
}

TEST(overflow_writes_nothing)
{
    const float scale = SCALE;
    const uint32_t found = 1, applied = 0;
    const struct kernel_adam adam = {.eps = 1e-8F, .half_type = KERNEL_F16};
    const struct kernel_lars lars = {.lr = 0.1F, .momentum = 0.9F, .half_type = KERNEL_F16};
    const struct kernel_adam_tensor for_adam = {f.grad,   f.master, f.first,
                                                f.second, f.half,   COUNT_MAX};
    const struct kernel_lars_tensor for_lars = {f.grad, f.master, f.first, f.half, COUNT_MAX, true};

    set_up(0, 1);
    kernel_adam_ref(&for_adam, 1, &adam, &scale, &found, &applied);
    kernel_lars_ref(&for_lars, 1, &lars, &scale, &found);
    check_guard(&f, sizeof f);
}

TEST_MAIN
