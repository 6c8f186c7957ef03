/* IEEE binary16 (f16) and bfloat16 as bits. Conversions round to nearest even and turn a NaN into
 * 0x7fff, as CUDA's do. Plain integer code: C17 has no half type that gcc and clang share. */
#ifndef KERNELS_HALF_H
#define KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t half_float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float half_bits_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t half_bf16_from(float value)
{
    uint32_t bits = half_float_bits(value);

    if ((bits & 0x7fffffffU) > 0x7f800000U)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

static inline float half_bf16_to(uint16_t half)
{
    return half_bits_float((uint32_t)half << 16);
}

/* A magnitude below 2^-14: the result counts units of 2^-24. */
static inline uint32_t half_f16_subnormal(uint32_t magnitude)
{
    uint32_t exponent = magnitude >> 23;
    uint32_t significand = (magnitude & 0x7fffffU) | 0x800000U;
    uint32_t shift = 126U - exponent, kept, lost, middle;

    if (shift > 24U)
        return 0; /* below 2^-25: half a unit at most, and a tie goes to zero */
    kept = significand >> shift;
    lost = significand & ((1U << shift) - 1U);
    middle = 1U << (shift - 1U);
    return kept + (lost > middle || (lost == middle && (kept & 1U) != 0U));
}

static inline uint16_t half_f16_from(float value)
{
    uint32_t bits = half_float_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000U, magnitude = bits & 0x7fffffffU;

    if (magnitude > 0x7f800000U)
        return 0x7fff;
    if (magnitude >= 0x477ff000U) /* 65520: rounds to 65536, which is infinity in f16 */
        return (uint16_t)(sign | 0x7c00U);
    if (magnitude < 0x38800000U)
        return (uint16_t)(sign | half_f16_subnormal(magnitude));
    magnitude -= 112U << 23; /* the exponent bias is 127 in f32, 15 in f16 */
    return (uint16_t)(sign | ((magnitude + 0xfffU + ((magnitude >> 13) & 1U)) >> 13));
}

static inline float half_f16_to(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000U) << 16, magnitude = half & 0x7fffU;

    if (magnitude >= 0x7c00U)
        return half_bits_float(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
    if (magnitude < 0x400U) {
        float value = (float)magnitude * 0x1p-24F;

        return sign != 0U ? -value : value;
    }
    return half_bits_float(sign | ((magnitude << 13) + (112U << 23)));
}

#endif
