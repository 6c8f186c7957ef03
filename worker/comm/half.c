/* Conversions and sums of 16-bit values, with F16C where the CPU has it. */
#include "worker/comm/half.h"

#include <stdbool.h>

#include "kernels/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define VECTOR __attribute__((target("avx,f16c")))

static bool has_f16c(void)
{
    return __builtin_cpu_supports("avx2"); /* implies F16C, which clang 14 cannot ask for by name */
}

VECTOR static __m256 load_f16(const uint16_t *halves)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)halves));
}

VECTOR static void store_f16(uint16_t *halves, __m256 values)
{
    _mm_storeu_si128((__m128i *)(void *)halves, _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
}

/* The functions below handle as many elements as fill whole vectors, and return how many. */
VECTOR static size_t add_vectors(uint16_t *sum, const uint16_t *a, const uint16_t *b, size_t count)
{
    size_t i = 0;

    for (; i + 8 <= count; i += 8)
        store_f16(sum + i, _mm256_add_ps(load_f16(a + i), load_f16(b + i)));
    return i;
}

VECTOR static size_t pack_vectors(const float *values, size_t count, uint16_t *halves)
{
    size_t i = 0;

    for (; i + 8 <= count; i += 8)
        store_f16(halves + i, _mm256_loadu_ps(values + i));
    return i;
}

VECTOR static size_t unpack_vectors(const uint16_t *halves, size_t count, float *values)
{
    size_t i = 0;

    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(values + i, load_f16(halves + i));
    return i;
}
#else
#define has_f16c() false
#define add_vectors(sum, a, b, count) ((size_t)0)
#define pack_vectors(values, count, halves) ((size_t)0)
#define unpack_vectors(halves, count, values) ((size_t)0)
#endif

static void add_f16(void *sum, const void *a, const void *b, size_t count)
{
    uint16_t *out = sum;
    const uint16_t *left = a, *right = b;

    for (size_t i = has_f16c() ? add_vectors(out, left, right, count) : 0; i < count; i++)
        out[i] = half_f16_from(half_f16_to(left[i]) + half_f16_to(right[i]));
}

static void add_bf16(void *sum, const void *a, const void *b, size_t count)
{
    uint16_t *out = sum;
    const uint16_t *left = a, *right = b;

    for (size_t i = 0; i < count; i++)
        out[i] = half_bf16_from(half_bf16_to(left[i]) + half_bf16_to(right[i]));
}

comm_half_add comm_half_adder(enum comm_half type)
{
    return type == COMM_F16 ? add_f16 : add_bf16;
}

void comm_half_pack(enum comm_half type, const float *values, size_t count, uint16_t *halves)
{
    size_t i = type == COMM_F16 && has_f16c() ? pack_vectors(values, count, halves) : 0;

    for (; i < count; i++)
        halves[i] = type == COMM_F16 ? half_f16_from(values[i]) : half_bf16_from(values[i]);
}

void comm_half_unpack(enum comm_half type, const uint16_t *halves, size_t count, float *values)
{
    size_t i = type == COMM_F16 && has_f16c() ? unpack_vectors(halves, count, values) : 0;

    for (; i < count; i++)
        values[i] = type == COMM_F16 ? half_f16_to(halves[i]) : half_bf16_to(halves[i]);
}

void comm_half_round(enum comm_half type, float *values, size_t count)
{
    enum { SLICE = 256 };
    uint16_t halves[SLICE];

    for (size_t at = 0; at < count; at += SLICE) {
        size_t n = count - at < SLICE ? count - at : SLICE;

        comm_half_pack(type, values + at, n, halves);
        comm_half_unpack(type, halves, n, values + at);
    }
}
