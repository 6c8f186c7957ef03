/* kernel_sgd_ref against an oracle of another kind: torch.optim.SGD's rule in double precision,
 * kept as the history of one parameter over several steps, so that an error in the momentum buffer
 * grows. */
#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/half.h"
#include "tests/lib/test.h"
#include "tests/unit/kernels/guard.h"

#define COUNT_MAX 259
#define GUARD 8
#define STEPS 5
#define SCALE 1024.0F

static const size_t counts[] = {0, 1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, COUNT_MAX};
static const struct kernel_sgd rules[] = {
    {.lr = 0.1F},
    {.lr = 0.05F, .weight_decay = 0.01F},
    {.lr = 0.1F, .momentum = 0.9F},
    {.lr = 0.1F, .momentum = 0.9F, .dampening = 0.3F, .weight_decay = 1e-2F},
    {.lr = 0.01F, .momentum = 0.9F, .weight_decay = 5e-3F, .nesterov = true},
};

/* Buffers with guards on both sides, and the oracle's state in double. */
static struct fixture {
    float grad[COUNT_MAX + 2 * GUARD], master[COUNT_MAX + 2 * GUARD],
        momentum[COUNT_MAX + 2 * GUARD];
    uint16_t grad_half[COUNT_MAX + 2 * GUARD], half[COUNT_MAX + 2 * GUARD];
    double param_oracle[COUNT_MAX], buf_oracle[COUNT_MAX];
} f;

static void set_up(size_t count, uint32_t seed)
{
    random_state = seed;
    memset(&f, GUARD_BYTE, sizeof f);
    for (size_t i = 0; i < count; i++) {
        f.master[GUARD + i] = draw();
        f.param_oracle[i] = (double)f.master[GUARD + i];
    }
}

static void check_guards(size_t count, bool momentum_written)
{
    size_t after = COUNT_MAX + GUARD - count;

    check_guard(f.master, GUARD * sizeof f.master[0]);
    check_guard(f.master + GUARD + count, after * sizeof f.master[0]);
    check_guard(f.half, GUARD * sizeof f.half[0]);
    check_guard(f.half + GUARD + count, after * sizeof f.half[0]);
    check_guard(f.momentum, GUARD * sizeof f.momentum[0]);
    check_guard(f.momentum + GUARD + count, after * sizeof f.momentum[0]);
    if (!momentum_written)
        check_guard(f.momentum, sizeof f.momentum);
}

/* torch.optim.SGD for one element, as its documentation states it. */
static void oracle_step(const struct kernel_sgd *sgd, size_t i, double grad)
{
    double mu = (double)sgd->momentum, d = grad + (double)sgd->weight_decay * f.param_oracle[i];

    if (mu != 0) {
        if (sgd->is_first_step)
            f.buf_oracle[i] = d;
        else
            f.buf_oracle[i] = mu * f.buf_oracle[i] + (1 - (double)sgd->dampening) * d;
        d = sgd->nesterov ? d + mu * f.buf_oracle[i] : f.buf_oracle[i];
    }
    f.param_oracle[i] -= (double)sgd->lr * d;
}

static void make_grads(const struct kernel_sgd *sgd, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float grad = draw() * SCALE;

        f.grad_half[GUARD + i] = half_f16_from(grad);
        f.grad[GUARD + i] =
            sgd->grad_type == KERNEL_F16 ? half_f16_to(f.grad_half[GUARD + i]) : grad;
        oracle_step(sgd, i, (double)f.grad[GUARD + i] / (double)SCALE);
    }
}

static void run_rule(struct kernel_sgd sgd, size_t count, uint32_t seed)
{
    const float scale = SCALE;
    const bool has_momentum = sgd.momentum != 0.0F;
    struct kernel_sgd_tensor tensor = {
        .grad = sgd.grad_type == KERNEL_F16 ? (const void *)(f.grad_half + GUARD) : f.grad + GUARD,
        .master = f.master + GUARD,
        .momentum = has_momentum ? f.momentum + GUARD : NULL,
        .half = f.half + GUARD,
        .count = count};

    set_up(count, seed);
    for (int step = 0; step < STEPS; step++) {
        sgd.is_first_step = step == 0;
        make_grads(&sgd, count);
        kernel_sgd_ref(&tensor, 1, &sgd, &scale, NULL);
        check_guards(count, has_momentum);
        for (size_t i = 0; i < count; i++) {
            float master = f.master[GUARD + i];

            CHECK_NEAR(master, f.param_oracle[i], 2e-6); /* values stay below 4: 8 ulp */
            if (has_momentum)
                CHECK_NEAR(f.momentum[GUARD + i], f.buf_oracle[i], 4e-6);
            CHECK_EQ(f.half[GUARD + i],
                     sgd.half_type == KERNEL_F16 ? half_f16_from(master) : half_bf16_from(master));
        }
    }
}

TEST(every_rule_at_every_size)
{
    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            for (int types = 0; types < 4; types++) {
                struct kernel_sgd sgd = rules[r];

                sgd.grad_type = types & 1 ? KERNEL_F16 : KERNEL_F32;
                sgd.half_type = types & 2 ? KERNEL_F16 : KERNEL_BF16;
                run_rule(sgd, counts[c], (uint32_t)(r * 1000 + c * 10 + (size_t)types + 1));
            }
}

/* Values worked out by hand: p 1, grad 2 (scaled by 4), lr 0.5, momentum 0.5, nesterov, two steps.
 *   step 1: g = 2, buf = 2, p = 1 - 0.5 * (2 + 0.5 * 2) = -0.5
 *   step 2: g = 2, buf = 0.5 * 2 + 2 = 3, p = -0.5 - 0.5 * (2 + 0.5 * 3) = -2.25 */
TEST(worked_example)
{
    float grad = 8.0F, master = 1.0F, momentum = NAN;
    const float scale = 4.0F;
    struct kernel_sgd_tensor tensor = {
        .grad = &grad, .master = &master, .momentum = &momentum, .half = NULL, .count = 1};
    struct kernel_sgd sgd = {.lr = 0.5F, .momentum = 0.5F, .nesterov = true, .is_first_step = true};

    kernel_sgd_ref(&tensor, 1, &sgd, &scale, NULL);
    CHECK(master == -0.5F && momentum == 2.0F);
    sgd.is_first_step = false;
    kernel_sgd_ref(&tensor, 1, &sgd, &scale, NULL);
    CHECK(master == -2.25F && momentum == 3.0F);
}

TEST(overflow_writes_nothing)
{
    struct kernel_sgd sgd = {.lr = 0.1F, .momentum = 0.9F, .half_type = KERNEL_F16};
    struct kernel_sgd_tensor tensor = {.grad = f.grad,
                                       .master = f.master,
                                       .momentum = f.momentum,
                                       .half = f.half,
                                       .count = COUNT_MAX};
    const float scale = 1.0F;
    uint32_t found = 1;

    set_up(0, 1);
    kernel_sgd_ref(&tensor, 1, &sgd, &scale, &found);
    check_guard(&f, offsetof(struct fixture, param_oracle));
    found = 0;
    kernel_sgd_ref(&tensor, 1, &sgd, &scale, &found);
    CHECK(f.master[0] != f.momentum[0]); /* without it, written */
}

TEST(many_tensors_are_as_many_calls)
{
    struct kernel_sgd_tensor tensors[70];
    struct kernel_sgd sgd = {.lr = 0.1F, .momentum = 0.9F, .is_first_step = true};
    const float scale = SCALE;
    float expected[COUNT_MAX];

    set_up(140, 7);
    make_grads(&sgd, 140);
    memcpy(expected, f.master + GUARD, sizeof expected);
    for (size_t i = 0, at = GUARD; i < 70;
         at += i++ % 5) /* counts 0 to 4, back to back: 140 elements */
        tensors[i] = (struct kernel_sgd_tensor){.grad = f.grad + at,
                                                .master = f.master + at,
                                                .momentum = f.momentum + at,
                                                .count = i % 5};
    kernel_sgd_ref(tensors, 70, &sgd, &scale, NULL);
    for (size_t i = 0; i < 140; i++) {
        CHECK_NEAR(f.master[GUARD + i], f.param_oracle[i], 1e-6);
        CHECK(f.master[GUARD + i] != expected[i]);
    }
    check_guards(140, true);
}

TEST_MAIN
