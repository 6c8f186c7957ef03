/* The references of kernels/gradients.h against the CPU's code: worker/net/scaler.c and
 * worker/net/clip.c. */
#include "kernels/gradients.h"

#include <math.h>

#include "tests/unit/kernels/oracle.h"
#include "worker/net/clip.h"
#include "worker/net/scaler.h"

#define SAME(field)                                                                                \
    _Static_assert(offsetof(struct kernel_scaler, field) == offsetof(struct scaler, field),        \
                   "one memory for both")

SAME(scale);
SAME(unskipped);
SAME(found_inf);
SAME(was_skipped);
SAME(skipped_in_a_row);
SAME(has_momentum);
SAME(min);
SAME(max);
SAME(window);
SAME(is_dynamic);
SAME(applied);
_Static_assert(sizeof(struct kernel_scaler) == sizeof(struct scaler), "one memory for both");

TEST(scaler_as_the_worker)
{
    for (uint32_t kind = 0; kind < 4; kind++) {
        const struct scaler_options options = {.is_dynamic = kind != 0,
                                               .init = 1024.0F,
                                               .min = kind == 1 ? 700.0F : 1.0F,
                                               .max = kind == 2 ? 3000.0F : 65536.0F,
                                               .window = 1 + kind};
        uint32_t seed = kind + 1;
        struct scaler expected;
        struct kernel_scaler actual;

        scaler_init(&expected, &options);
        memcpy(&actual, &expected, sizeof actual);
        for (int step = 0; step < 200; step++) {
            const bool used_momentum = step > 3;

            seed = seed * 1664525U + 1013904223U;
            expected.found_inf = actual.found_inf = seed >> 30 == 0;
            if (used_momentum && expected.found_inf == 0)
                expected.has_momentum = 1;
            scaler_step(&expected);
            kernel_scaler_step_ref(&actual, used_momentum);
            CHECK_BYTES(&actual, &expected, sizeof actual);
        }
    }
}

static uint64_t scratch[KERNEL_CLIP_SCRATCH_BYTES / 8];

static void clip(union oracle_values *values, enum kernel_type type, size_t count,
                 const struct kernel_clip *rule, float scale, uint32_t found)
{
    const size_t first = count / 3, bytes = type == KERNEL_F32 ? 4 : 2;
    const struct kernel_span spans[] = {{values, first, type},
                                        {values, 0, type},
                                        {(uint8_t *)values + first * bytes, count - first, type}};

    kernel_clip_ref(spans, 3, rule, &scale, &found, scratch);
}

TEST(clip_as_the_worker)
{
    static const size_t counts[] = {0, 1, 5, 300, 50000};
    static const struct kernel_clip rules[] = {
        {0.0F, 0.0F}, {0.5F, 0.0F}, {0.0F, 2.0F}, {0.0F, 1e5F}, {0.6F, 1.5F}};
    static union oracle_values actual, expected;

    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++)
        for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++) {
            const struct net_clip same = {rules[r].value, rules[r].norm};

            oracle_random(&actual, KERNEL_F32, counts[n], 256.0, (uint32_t)n + 1);
            oracle_random(&expected, KERNEL_F32, counts[n], 256.0, (uint32_t)n + 1);
            clip(&actual, KERNEL_F32, counts[n], &rules[r], 256.0F, 0);
            clip_grads(expected.f32, counts[n], &same, 256.0F);
            for (size_t i = 0; i < counts[n]; i++)
                CHECK_NEAR(actual.f32[i], expected.f32[i], 2e-7 * fabs((double)expected.f32[i]));
            oracle_check_poison(&actual, KERNEL_F32, counts[n]);
        }
}

TEST(clip_of_halves_holds_the_norm)
{
    static union oracle_values values;
    const struct kernel_clip rule = {0.0F, 2.0F};

    for (enum kernel_type type = KERNEL_F16; type <= KERNEL_BF16; type++) {
        double squares = 0.0;

        oracle_random(&values, type, 3000, 64.0, 3);
        clip(&values, type, 3000, &rule, 64.0F, 0);
        for (size_t i = 0; i < 3000; i++)
            squares += pow(oracle_get(&values, type, i) / 64.0, 2.0);
        CHECK_NEAR(sqrt(squares), 2.0, type == KERNEL_F16 ? 1e-3 : 8e-3);
    }
}

TEST(clip_edges)
{
    static union oracle_values values;
    const struct kernel_clip norm = {0.0F, 1.0F}, value = {1.0F, 0.0F};

    values.f32[0] = 3.0F;
    values.f32[1] = NAN;
    clip(&values, KERNEL_F32, 2, &value, 1.0F, 0);
    CHECK(values.f32[0] == 1.0F && isnan(values.f32[1])); /* not clipped away */
    clip(&values, KERNEL_F32, 2, &norm, 1.0F, 1);
    CHECK(values.f32[0] == 1.0F); /* a step that is skipped: untouched */
    clip(&values, KERNEL_F32, 2, &norm, 1.0F, 0);
    CHECK(isnan(values.f32[0])); /* the norm is NaN, so every value becomes NaN */
    values.f32[0] = values.f32[1] = 0.0F;
    clip(&values, KERNEL_F32, 2, &norm, 1.0F, 0);
    CHECK(values.f32[0] == 0.0F && values.f32[1] == 0.0F);
}

TEST_MAIN
