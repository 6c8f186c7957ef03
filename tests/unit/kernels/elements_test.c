/* The references of kernels/elements.h against an oracle in double, with values at the edges of the
 * types whose right answer is known. */
#include "kernels/elements.h"

#include <math.h>
#include <string.h>

#include "kernels/values.h"
#include "tests/lib/test.h"
#include "tests/unit/kernels/oracle.h"

#define COUNT 131

static const float edges[] = {
    0.0F,  -0.0F,  1.0F, -1.0F, 65504.0F, 65519.9F,  65520.0F,    1e-8F,   6.1e-5F, -3e-8F,
    1e38F, -1e38F, 3.5F, 0.1F,  INFINITY, -INFINITY, 1.00048828F, 2049.0F, 2051.0F};
#define EDGES (sizeof edges / sizeof edges[0])

TEST(cast_rounds_to_nearest)
{
    union oracle_values from, to;

    for (size_t i = 0; i < EDGES; i++)
        from.f32[i] = edges[i];
    for (enum kernel_type type = KERNEL_F16; type <= KERNEL_BF16; type++) {
        oracle_poison(&to);
        kernel_cast_ref(&to, type, &from, KERNEL_F32, EDGES);
        for (size_t i = 0; i < EDGES; i++)
            CHECK(oracle_get(&to, type, i) == oracle_round((double)edges[i], type));
        oracle_check_poison(&to, type, EDGES);
    }
}

TEST(cast_keeps_a_nan)
{
    const float nan_in[2] = {NAN, -NAN};
    uint16_t half[2];
    float back[2];

    for (enum kernel_type type = KERNEL_F16; type <= KERNEL_BF16; type++) {
        kernel_cast_ref(half, type, nan_in, KERNEL_F32, 2);
        CHECK(half[0] == 0x7fff && half[1] == 0x7fff);
        kernel_cast_ref(back, KERNEL_F32, half, type, 2);
        CHECK(isnan(back[0]) && isnan(back[1]));
    }
}

TEST(cast_between_halves_goes_through_f32)
{
    const uint16_t f16[3] = {0x3c00, 0x7bff, 0x0001}; /* 1, 65504, 2^-24 */
    uint16_t bf16[3];

    kernel_cast_ref(bf16, KERNEL_BF16, f16, KERNEL_F16, 3);
    CHECK_EQ(bf16[0], 0x3f80);
    CHECK_EQ(bf16[1], 0x4780); /* 65536 */
    CHECK_EQ(bf16[2], 0x3380);
}

TEST(add_and_its_relu)
{
    union oracle_values a, b, y;

    for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++)
        for (int relu = 0; relu < 2; relu++) {
            oracle_random(&a, type, COUNT, 3.0, 11);
            oracle_random(&b, type, COUNT, 3.0, 12);
            oracle_poison(&y);
            kernel_add_ref(&y, &a, &b, type, relu, COUNT);
            for (size_t i = 0; i < COUNT; i++) {
                double sum = oracle_get(&a, type, i) + oracle_get(&b, type, i);

                sum = (double)(float)sum; /* computed in f32 */
                CHECK(oracle_get(&y, type, i) == oracle_round(relu ? fmax(sum, 0.0) : sum, type));
            }
            oracle_check_poison(&y, type, COUNT);
        }
}

TEST(nan_is_not_hidden)
{
    const float x[3] = {NAN, -1.0F, 2.0F}, dy[3] = {5.0F, 6.0F, 7.0F};
    float y[3], dx[3];

    kernel_relu_ref(y, x, KERNEL_F32, 3);
    CHECK(isnan(y[0]) && y[1] == 0.0F && y[2] == 2.0F);
    kernel_relu_backward_ref(dx, y, dy, KERNEL_F32, 3);
    CHECK(dx[0] == 5.0F && dx[1] == 0.0F && dx[2] == 7.0F);
    kernel_add_ref(y, x, dy, KERNEL_F32, true, 3);
    CHECK(isnan(y[0]) && y[1] == 5.0F && y[2] == 9.0F);
}

TEST(relu_cuts_the_gradient_where_it_cut_the_value)
{
    union oracle_values x, y, dy, dx;

    for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++) {
        oracle_random(&x, type, COUNT, 1.0, 21);
        oracle_random(&dy, type, COUNT, 1.0, 22);
        values_set(&x, type, 5, 0.0F);
        oracle_poison(&y);
        oracle_poison(&dx);
        kernel_relu_ref(&y, &x, type, COUNT);
        kernel_relu_backward_ref(&dx, &y, &dy, type, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            const bool passed = oracle_get(&x, type, i) > 0.0;

            CHECK(oracle_get(&y, type, i) == (passed ? oracle_get(&x, type, i) : 0.0));
            CHECK(oracle_get(&dx, type, i) == (passed ? oracle_get(&dy, type, i) : 0.0));
        }
        oracle_check_poison(&y, type, COUNT);
        oracle_check_poison(&dx, type, COUNT);
    }
}

/* Many small halves: the sum is in f32, so none of them is lost. */
TEST(accumulate_in_f32)
{
    float sum[2] = {2048.0F, 0.0F};
    uint16_t grads[2];

    for (int k = 0; k < 8; k++) {
        grads[0] = half_f16_from(0.25F);
        grads[1] = half_f16_from(-1.5F);
        kernel_accumulate_ref(sum, KERNEL_F32, grads, KERNEL_F16, 1.0F, k % 2 == 1, 2);
        CHECK_EQ(grads[0], k % 2 == 1 ? 0 : 0x3400);
    }
    CHECK(sum[0] == 2050.0F && sum[1] == -12.0F);
    grads[0] = half_f16_from(3.0F);
    kernel_accumulate_ref(sum, KERNEL_F32, grads, KERNEL_F16, 0.5F, true, 1);
    CHECK(sum[0] == 2051.5F && sum[1] == -12.0F && grads[0] == 0);
}

TEST_MAIN
