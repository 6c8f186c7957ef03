/* exp and log in double, the same code for kernels and references: CUDA's functions differ from the
 * C library's in the last bit. Within 2 ulp. Uses only +, -, *, / and bits, which round the same
 * everywhere. */
#ifndef KERNELS_EXPONENT_H
#define KERNELS_EXPONENT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define EXPONENT_FUNCTION static __host__ __device__ inline
#else
#define EXPONENT_FUNCTION static inline
#endif

/* ln 2 in two parts. The high part ends in 21 zero bits, so its product with an exponent is exact.
 */
#define EXPONENT_LN2_HIGH 6.93147180369123816490e-01
#define EXPONENT_LN2_LOW 1.90821492927058770002e-10

EXPONENT_FUNCTION double exponent_bits(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* e^x for x <= 0. Below -708, where the result would be subnormal: 0. NaN for NaN.
 *   x = n ln 2 + r with |r| <= 0.35
 *   e^x = 2^n * e^r, e^r by its Taylor series, whose 14th term is below 2^-57 */
EXPONENT_FUNCTION double exponent_exp(double x)
{
    double n, r, sum = 1.0;

    if (!(x >= -708.0))
        return x < -708.0 ? 0.0 : x;
    n = floor(x * 1.44269504088896338700 + 0.5);
    r = x - n * EXPONENT_LN2_HIGH - n * EXPONENT_LN2_LOW;
    for (int k = 13; k > 0; k--)
        sum = 1.0 + sum * r * (1.0 / k);
    return sum * exponent_bits((uint64_t)(1023 + (int64_t)n) << 52);
}

/* ln x for x >= 1. Infinity and NaN are returned unchanged.
 *   x = m * 2^e with 0.71 <= m <= 1.42
 *   ln x = e ln 2 + 2 artanh((m - 1) / (m + 1)); the 12th term of artanh's series is below 2^-60 */
EXPONENT_FUNCTION double exponent_log(double x)
{
    uint64_t bits;
    double e, m, s, square, sum = 0.0;

    if (!(x < INFINITY))
        return x;
    memcpy(&bits, &x, sizeof bits);
    e = (double)((int64_t)(bits >> 52) - 1023);
    m = exponent_bits((bits & 0xfffffffffffffU) | 0x3ff0000000000000U);
    if (m > 1.41421356237309504880) {
        m *= 0.5;
        e += 1.0;
    }
    s = (m - 1.0) / (m + 1.0);
    square = s * s;
    for (int k = 23; k > 0; k -= 2)
        sum = sum * square + 1.0 / k;
    return e * EXPONENT_LN2_HIGH + (e * EXPONENT_LN2_LOW + 2.0 * s * sum);
}

#endif
