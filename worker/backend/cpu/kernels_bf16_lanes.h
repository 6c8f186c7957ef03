/* Vectors of CPU_BLOCK numbers for the bf16 loops, compiled once per instruction set, and scalar
 * versions for the channels that do not fill a vector. */
#ifndef WORKER_BACKEND_CPU_KERNELS_BF16_LANES_H
#define WORKER_BACKEND_CPU_KERNELS_BF16_LANES_H

#include <stdint.h>
#include <string.h>

#include "kernels/half.h"

#ifndef CPU_BLOCK /* defined by the build when it compiles the loops */
#define CPU_BLOCK 4
#endif
#define B CPU_BLOCK

typedef float lanes __attribute__((vector_size(sizeof(float) * B), may_alias));
typedef int32_t lanes_mask __attribute__((vector_size(sizeof(int32_t) * B), may_alias));
typedef uint32_t lanes_bits __attribute__((vector_size(sizeof(uint32_t) * B), may_alias));
typedef uint16_t lanes_half __attribute__((vector_size(sizeof(uint16_t) * B), may_alias));
typedef uint8_t lanes_byte __attribute__((vector_size(B), may_alias));

/* Rows of channels may be unaligned. */
static inline lanes load_half(const uint16_t *from)
{
    lanes_half half;

    memcpy(&half, from, sizeof half);
    return (lanes)(__builtin_convertvector(half, lanes_bits) << 16);
}

static inline lanes load(const float *from)
{
    lanes values;

    memcpy(&values, from, sizeof values);
    return values;
}

static inline void store(float *to, lanes values)
{
    memcpy(to, &values, sizeof values);
}

static inline lanes_mask is_nan(lanes values)
{
    return ((lanes_mask)values & 0x7fffffff) > 0x7f800000;
}

/* Rounds to bf16; the result is in the upper half of the bits. */
static inline lanes_bits round_bits(lanes values)
{
    const lanes_bits bits = (lanes_bits)values;
    const lanes_bits nan = (lanes_bits)is_nan(values);
    const lanes_bits rounded = bits + (0x7fffU + ((bits >> 16) & 1U));

    return (nan & 0x7fff0000U) | (~nan & rounded);
}

static inline void store_half(uint16_t *to, lanes values)
{
    const lanes_half half = __builtin_convertvector(round_bits(values) >> 16, lanes_half);

    memcpy(to, &half, sizeof half);
}

static inline lanes round_lanes(lanes values)
{
    return (lanes)(round_bits(values) & 0xffff0000U);
}

static inline lanes cut(lanes_mask mask, lanes values)
{
    return (lanes)(mask & (lanes_mask)values);
}

static inline lanes pick(lanes_mask mask, lanes yes, lanes no)
{
    return (lanes)((mask & (lanes_mask)yes) | (~mask & (lanes_mask)no));
}

/* max(least, values); a NaN stays. */
static inline lanes at_least(float least, lanes values)
{
    const lanes floor = (lanes){0} + least;

    return pick(values < floor, floor, values);
}

static inline float at_least_one(float least, float value)
{
    return value < least ? least : value;
}

static inline float round_one(float value)
{
    return half_bf16_to(half_bf16_from(value));
}

/* Positive numbers up to this one are rounded to 0. */
#define ROUNDS_TO_ZERO 0x1p-134F

#endif
