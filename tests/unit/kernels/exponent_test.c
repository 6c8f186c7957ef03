/* exp and log of kernels/exponent.h against the C library's in long double. */
#include "kernels/exponent.h"

#include "tests/lib/test.h"

TEST(exp_within_two_ulp)
{
    for (int i = 0; i < 200000; i++) {
        const double x = -708.0 * i / 200000.0 * (i % 3 == 0 ? 1e-3 : 1.0);
        const double expected = (double)expl((long double)x);

        CHECK_NEAR(exponent_exp(x) / expected, 1.0, 4.5e-16);
    }
}

TEST(log_within_two_ulp)
{
    for (int i = 1; i < 200000; i++) {
        const double x = 1.0 + (i % 2 ? i * 1e-5 : i * (double)i);
        const double expected = (double)logl((long double)x);

        CHECK_NEAR(exponent_log(x) / expected, 1.0, 4.5e-16);
    }
}

TEST(edges)
{
    CHECK(exponent_exp(0.0) == 1.0 && exponent_exp(-0.0) == 1.0);
    CHECK(exponent_exp(-709.0) == 0.0 && exponent_exp(-INFINITY) == 0.0);
    CHECK(isnan(exponent_exp(NAN)) && isnan(exponent_log(NAN)));
    CHECK(exponent_log(1.0) == 0.0 && isinf(exponent_log(INFINITY)));
}

TEST_MAIN
