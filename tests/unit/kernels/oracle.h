/* Shared by the tests of the references: values in all three types, with guards after them, and
 * rounding by another method than in the references: in double, by scaling to whole numbers. */
#ifndef TESTS_UNIT_KERNELS_ORACLE_H
#define TESTS_UNIT_KERNELS_ORACLE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/values.h"
#include "tests/lib/test.h"

#define ORACLE_COUNT_MAX 65536
#define ORACLE_GUARD 64 /* bytes after the last value that must not change */

union oracle_values {
    float f32[ORACLE_COUNT_MAX + ORACLE_GUARD];
    uint16_t half[ORACLE_COUNT_MAX + ORACLE_GUARD];
    uint8_t bytes[4];
};

static inline void oracle_poison(union oracle_values *values)
{
    memset(values, 0x7b, sizeof *values);
}

static inline void oracle_check_poison(const union oracle_values *values, enum kernel_type type,
                                       size_t count)
{
    const uint8_t *after = (const uint8_t *)values + count * (type == KERNEL_F32 ? 4 : 2);

    for (size_t i = 0; i < ORACLE_GUARD; i++)
        CHECK_EQ(after[i], 0x7b);
}

static inline double oracle_get(const union oracle_values *values, enum kernel_type type, size_t i)
{
    return (double)values_get(values, type, i);
}

/* The nearest value of the type, ties to even (rint's rule): a whole number of units, whose size
 * depends on the exponent, and infinity if it is too large. */
static inline double oracle_round(double value, enum kernel_type type)
{
    const int digits = type == KERNEL_F32 ? 24 : type == KERNEL_F16 ? 11 : 8;
    const int exponent_min = type == KERNEL_F16 ? -14 : -126;
    const double max = type == KERNEL_F16   ? 65504.0
                       : type == KERNEL_F32 ? 0x1.fffffep127
                                            : 0x1.fep127;
    int exponent;
    double unit, rounded;

    if (!isfinite(value) || value == 0.0)
        return value;
    (void)frexp(value, &exponent);
    exponent = exponent - 1 < exponent_min ? exponent_min : exponent - 1;
    unit = ldexp(1.0, exponent - digits + 1);
    rounded = rint(value / unit) * unit;
    return fabs(rounded) > max ? copysign((double)INFINITY, value) : rounded;
}

/* Uniform in [-scale, scale), rounded to the type. */
static inline void oracle_random(union oracle_values *values, enum kernel_type type, size_t count,
                                 double scale, uint32_t seed)
{
    oracle_poison(values);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525U + 1013904223U;
        values_set(values, type, i, (float)(((double)(seed >> 8) * 0x1p-23 - 1.0) * scale));
    }
}

#endif
