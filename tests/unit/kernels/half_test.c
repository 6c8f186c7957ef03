/* half.h against an oracle without bit operations: it computes every half's value with ldexp from
 * the format's definition (IEEE 754-2019, section 3.4), and rounds to the nearest of all of them,
 * to the even one on a tie. */
#include "kernels/half.h"

#include <math.h>
#include <stdlib.h>

#include "tests/lib/test.h"

struct format {
    int significand_bits, bias;
    uint16_t (*from)(float);
    float (*to)(uint16_t);
};

static const struct format f16 = {10, 15, half_f16_from, half_f16_to};
static const struct format bf16 = {7, 127, half_bf16_from, half_bf16_to};

/* The value of a finite half by definition. For the code after the largest finite half it gives the
 * value that rounding to infinity compares with. */
static double value_of(const struct format *format, uint16_t magnitude)
{
    int exponent = magnitude >> format->significand_bits;
    int fraction = magnitude & ((1 << format->significand_bits) - 1);

    if (exponent == 0)
        return ldexp(fraction, 1 - format->bias - format->significand_bits);
    return ldexp(fraction + (1 << format->significand_bits),
                 exponent - format->bias - format->significand_bits);
}

static uint16_t infinity_of(const struct format *format)
{
    return (uint16_t)(0x7fff >> format->significand_bits << format->significand_bits);
}

/* The nearest half by bisection over the ordered magnitudes. */
static uint16_t oracle(const struct format *format, double value)
{
    uint16_t low = 0, high = infinity_of(format);
    double magnitude = fabs(value), middle;

    if (isinf(value))
        return (uint16_t)(high | (value < 0 ? 0x8000 : 0));
    while (high - low > 1) {
        uint16_t probe = (uint16_t)((low + high) / 2);

        if (value_of(format, probe) <= magnitude)
            low = probe;
        else
            high = probe;
    }
    middle = (value_of(format, low) + value_of(format, high)) / 2;
    if (magnitude > middle || (magnitude == middle && low % 2 == 1))
        low = high;
    return (uint16_t)(low | (signbit(value) ? 0x8000 : 0));
}

static void check_from(const struct format *format, float value)
{
    uint16_t expected = oracle(format, (double)value), actual = format->from(value);

    if (actual != expected)
        FAIL("%a became 0x%04x, expected 0x%04x", (double)value, actual, expected);
}

/* Reads every half, writes it back, and rounds the floats just below, at and just above each
 * midpoint to the next half. */
static void check_all(const struct format *format)
{
    for (uint16_t magnitude = 0; magnitude < infinity_of(format); magnitude++) {
        double value = value_of(format, magnitude);
        float middle = (float)((value + value_of(format, (uint16_t)(magnitude + 1))) / 2);

        for (int sign = 0; sign < 2; sign++) {
            uint16_t half = (uint16_t)(magnitude | (sign ? 0x8000 : 0));
            float one = sign ? -1.0F : 1.0F;

            CHECK((double)format->to(half) == (double)one * value);
            CHECK_EQ(signbit(format->to(half)) != 0, sign);
            CHECK_EQ(format->from(format->to(half)), half);
            if (isinf(middle))
                continue;
            check_from(format, one * middle);
            check_from(format, one * nextafterf(middle, 0.0F));
            check_from(format, one * nextafterf(middle, INFINITY));
        }
    }
}

TEST(f16_every_value_and_midpoint)
{
    check_all(&f16);
}

TEST(bf16_every_value_and_midpoint)
{
    check_all(&bf16);
}

TEST(special_values)
{
    static const struct format *const formats[] = {&f16, &bf16};

    for (size_t i = 0; i < 2; i++) {
        const struct format *format = formats[i];

        CHECK_EQ(format->from(INFINITY), infinity_of(format));
        CHECK_EQ(format->from(-INFINITY), infinity_of(format) | 0x8000);
        CHECK_EQ(format->from(NAN), 0x7fff);
        CHECK_EQ(format->from(-NAN), 0x7fff);
        CHECK(isinf(format->to(infinity_of(format))));
        CHECK(isnan(format->to(0x7fff)));
        CHECK_EQ(format->from(-0.0F), 0x8000);
        CHECK_EQ(format->from(3.4028235e38F), infinity_of(format));
        CHECK_EQ(format->from(1e-45F), 0);
    }
    CHECK_EQ(f16.from(65519.996F), 0x7bff); /* the largest finite one is 65504 */
    CHECK_EQ(f16.from(65520.0F), 0x7c00);
}

TEST(random_floats)
{
    uint32_t bits = 12345;

    for (int i = 0; i < 200000; i++) {
        float value;

        bits = bits * 1664525U + 1013904223U;
        value = half_bits_float(bits ^ bits >> 13);
        if (isnan(value))
            continue;
        check_from(&f16, value);
        check_from(&bf16, value);
    }
}

TEST_MAIN
