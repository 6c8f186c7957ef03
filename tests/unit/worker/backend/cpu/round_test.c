/* The fast roundings against kernels/half.h (which has an oracle of its own in kernels-half): every
 * half, every midpoint between two and its neighbours, and every pair of a sample added. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/half.h"
#include "tests/lib/test.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/comm/half.h"

#define VALUES (65536 * 4)

static float values[VALUES], rounded[VALUES];
static uint16_t halves[VALUES];

static float f16(float x)
{
    return half_f16_to(half_f16_from(x));
}

static float bf16(float x)
{
    return half_bf16_to(half_bf16_from(x));
}

/* Every half of a type, the midpoint to the next half, and both neighbours of the midpoint. */
static void fill(float (*to)(uint16_t))
{
    for (uint32_t i = 0; i < 65536; i++) {
        float value = to((uint16_t)i), next = to((uint16_t)(i + 1));
        float middle = value / 2 + next / 2;

        values[4 * i] = value;
        values[4 * i + 1] = middle;
        values[4 * i + 2] = nextafterf(middle, INFINITY);
        values[4 * i + 3] = nextafterf(middle, -INFINITY);
    }
}

static void check(const char *what, const float *actual, float (*expected)(float))
{
    for (size_t i = 0; i < VALUES; i++) {
        float want = expected(values[i]);

        if (isnan(want) ? !isnan(actual[i]) : half_float_bits(actual[i]) != half_float_bits(want))
            FAIL("%s: %a became %a, expected %a", what, (double)values[i], (double)actual[i],
                 (double)want);
    }
}

static void check_table(const struct cpu_kernels *kernels)
{
    fill(half_f16_to);
    kernels->round_f16(values, VALUES, rounded);
    check(kernels->name, rounded, f16);
    /* also lengths that are not a multiple of a vector */
    for (size_t n = 0; n < 40; n++) {
        memset(rounded, 0x55, sizeof rounded[0] * 64);
        kernels->round_f16(values + 4000, n, rounded);
        for (size_t i = 0; i < n; i++)
            CHECK(rounded[i] == f16(values[4000 + i]));
        CHECK_EQ(half_float_bits(rounded[n]), 0x55555555);
    }
    fill(half_bf16_to);
    kernels->round_bf16(values, VALUES, rounded);
    check(kernels->name, rounded, bf16);
}

TEST(every_table_rounds_as_half_h)
{
    check_table(&cpu_kernels_generic);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        check_table(&cpu_kernels_avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        check_table(&cpu_kernels_avx512);
#endif
}

TEST(pack_and_unpack)
{
    fill(half_f16_to);
    comm_half_pack(COMM_F16, values, VALUES, halves);
    comm_half_unpack(COMM_F16, halves, VALUES, rounded);
    check("pack fp16", rounded, f16);
    fill(half_bf16_to);
    comm_half_pack(COMM_BF16, values, VALUES, halves);
    comm_half_unpack(COMM_BF16, halves, VALUES, rounded);
    check("pack bf16", rounded, bf16);
}

TEST(sums_are_rounded_once)
{
    static uint16_t a[65536], b[65536], sum[65536];

    for (uint32_t shift = 1; shift < 65536; shift = shift * 3 + 1) {
        for (uint32_t i = 0; i < 65536; i++) {
            a[i] = (uint16_t)i;
            b[i] = (uint16_t)(i * 5 + shift);
        }
        comm_half_adder(COMM_F16)(sum, a, b, 65536);
        for (uint32_t i = 0; i < 65536; i++) {
            float want = f16(half_f16_to(a[i]) + half_f16_to(b[i])), got = half_f16_to(sum[i]);

            CHECK(isnan(want) ? isnan(got) : want == got);
        }
        comm_half_adder(COMM_BF16)(sum, a, b, 65536);
        for (uint32_t i = 0; i < 65536; i++) {
            float want = bf16(half_bf16_to(a[i]) + half_bf16_to(b[i])), got = half_bf16_to(sum[i]);

            CHECK(isnan(want) ? isnan(got) : want == got);
        }
    }
}

TEST_MAIN
