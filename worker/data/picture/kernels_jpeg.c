#include "worker/data/picture/kernels_jpeg.h"

#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

/* Twice the largest value that a real picture has in either pass. A sum of four such values fits
 * into 16 bits, in which libjpeg-turbo adds. */
#define LARGEST 8192u

enum { LANES = 8, FRACTION = 13, KEPT = 2 }; /* CONST_BITS, PASS1_BITS of jidctint.c */

static uint8_t clip(int32_t value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

#ifdef __AVX2__

/* For each pair the sum of its two products. */
static inline __m256i sums(__m256i pairs, int16_t even, int16_t odd)
{
    return _mm256_madd_epi16(
        pairs, _mm256_set1_epi32((int32_t)((uint32_t)(uint16_t)odd << 16 | (uint16_t)even)));
}

/* One dimension, 8 at a time, with the products of jidctint.c multiplied out, as in libjpeg-turbo.
 * in: pairs of 16 bits, of rows 0 and 4, 2 and 6, 7 and 1, 3 and 5; out: 8 rows. */
static inline __attribute__((always_inline)) void idct_pairs(const __m256i *in, __m256i *out,
                                                             int shift)
{
    const __m256i half = _mm256_set1_epi32(1 << (shift - 1));
    __m256i tmp0 = _mm256_add_epi32(sums(in[0], 8192, 8192), half);
    __m256i tmp1 = _mm256_add_epi32(sums(in[0], 8192, -8192), half);
    __m256i tmp2 = sums(in[1], 4433, 4433 - 15137);
    __m256i tmp3 = sums(in[1], 4433 + 6270, 4433);
    __m256i z34 = _mm256_add_epi16(in[2], in[3]);
    __m256i z3 = sums(z34, 9633 - 16069, 9633);
    __m256i z4 = sums(z34, 9633, 9633 - 3196);
    __m256i even[4] = {_mm256_add_epi32(tmp0, tmp3), _mm256_add_epi32(tmp1, tmp2),
                       _mm256_sub_epi32(tmp1, tmp2), _mm256_sub_epi32(tmp0, tmp3)};
    __m256i odd[4] = {_mm256_add_epi32(sums(in[2], -7373, 12299 - 7373), z4),
                      _mm256_add_epi32(sums(in[3], 25172 - 20995, -20995), z3),
                      _mm256_add_epi32(sums(in[3], -20995, 16819 - 20995), z4),
                      _mm256_add_epi32(sums(in[2], 2446 - 7373, -7373), z3)};

    for (int i = 0; i < 4; i++) {
        out[i] = _mm256_srai_epi32(_mm256_add_epi32(even[i], odd[i]), shift);
        out[7 - i] = _mm256_srai_epi32(_mm256_sub_epi32(even[i], odd[i]), shift);
    }
}

/* Whether all values are from -LARGEST to LARGEST - 1. */
static inline __attribute__((always_inline)) bool are_usual(const __m256i *pairs)
{
    const __m256i largest = _mm256_set1_epi16((int16_t)LARGEST);
    __m256i bits = _mm256_or_si256(
        _mm256_or_si256(_mm256_add_epi16(pairs[0], largest), _mm256_add_epi16(pairs[1], largest)),
        _mm256_or_si256(_mm256_add_epi16(pairs[2], largest), _mm256_add_epi16(pairs[3], largest)));

    return _mm256_testz_si256(bits, _mm256_set1_epi16((int16_t) ~(2 * LARGEST - 1))) != 0;
}

/* Converts 8 rows to pairs of their columns, saturated to 16 bits. */
static inline __attribute__((always_inline)) void to_pairs(const __m256i *rows, __m256i *pairs)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, 14, 15, 2, 3, 6, 7, 10, 11));
    __m256i a[4]; /* rows i and i + 4, one 32-bit lane per pair */
    __m256i b[4];

    for (int i = 0; i < 4; i++)
        a[i] = _mm256_shuffle_epi8(
            _mm256_permute4x64_epi64(_mm256_packs_epi32(rows[i], rows[i + 4]), 0xd8), order);
    b[0] = _mm256_unpacklo_epi32(a[0], a[1]);
    b[1] = _mm256_unpackhi_epi32(a[0], a[1]);
    b[2] = _mm256_unpacklo_epi32(a[2], a[3]);
    b[3] = _mm256_unpackhi_epi32(a[2], a[3]);
    pairs[0] = _mm256_unpacklo_epi64(b[0], b[2]);
    pairs[1] = _mm256_unpackhi_epi64(b[0], b[2]);
    pairs[2] = _mm256_unpacklo_epi64(b[1], b[3]);
    pairs[3] = _mm256_unpackhi_epi64(b[1], b[3]);
}

/* Converts 4 columns to bytes: the lanes are the rows 0 to 3 and 4 to 7, with 4 bytes for each. */
static inline __m256i to_bytes(const __m256i *columns)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(columns[0], columns[1]),
                                       _mm256_packs_epi32(columns[2], columns[3]));

    return _mm256_shuffle_epi8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), order);
}

static bool idct_full(const int16_t *block, uint8_t *out, size_t stride)
{
    __m256i pairs[4];
    __m256i rows[LANES];
    __m256i left;
    __m256i right;

    for (int i = 0; i < 4; i++)
        pairs[i] = _mm256_load_si256((const void *)(block + (size_t)16 * (size_t)i));
    if (!are_usual(pairs))
        return false;
    idct_pairs(pairs, rows, FRACTION - KEPT);
    to_pairs(rows, pairs);
    if (!are_usual(pairs))
        return false;
    idct_pairs(pairs, rows, FRACTION + KEPT + 3);
    left = to_bytes(rows);
    right = to_bytes(rows + 4);
    for (size_t i = 0; i < 2; i++) {
        __m256i two =
            i == 0 ? _mm256_unpacklo_epi32(left, right) : _mm256_unpackhi_epi32(left, right);
        __m128i low = _mm256_castsi256_si128(two);
        __m128i high = _mm256_extracti128_si256(two, 1);

        _mm_storel_epi64((void *)(out + 2 * i * stride), low);
        _mm_storeh_pd((void *)(out + (2 * i + 1) * stride), _mm_castsi128_pd(low));
        _mm_storel_epi64((void *)(out + (2 * i + 4) * stride), high);
        _mm_storeh_pd((void *)(out + (2 * i + 5) * stride), _mm_castsi128_pd(high));
    }
    return true;
}

#else

/* Unsigned, so that extreme values of a damaged file wrap around. */
typedef uint32_t lanes __attribute__((vector_size(LANES * 4)));
typedef int32_t signed_lanes __attribute__((vector_size(LANES * 4)));
typedef uint8_t byte_lanes __attribute__((vector_size(LANES)));

static inline __attribute__((always_inline)) void transpose(lanes *rows)
{
    lanes a[LANES];
    lanes b[LANES];

    for (int i = 0; i < LANES; i += 2) {
        a[i] = __builtin_shufflevector(rows[i], rows[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        a[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int i = 0; i < LANES; i += 4)
        for (int j = 0; j < 2; j++) {
            b[i + j] = __builtin_shufflevector(a[i + j], a[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            b[i + j + 2] =
                __builtin_shufflevector(a[i + j], a[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; i++) {
        rows[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        rows[i + 4] = __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

/* One dimension, 8 at a time, with the names of jidctint.c. Source: Loeffler, Ligtenberg and
 * Moschytz 1989, figure 1, with the constants times 2^13. */
static inline __attribute__((always_inline)) void idct_lanes(lanes *in, int shift)
{
    lanes z1 = (in[2] + in[6]) * 4433u;
    lanes tmp2 = z1 - in[6] * 15137u;
    lanes tmp3 = z1 + in[2] * 6270u;
    lanes tmp0 = (in[0] + in[4]) << FRACTION;
    lanes tmp1 = (in[0] - in[4]) << FRACTION;
    lanes half = (lanes){0} + (1u << (shift - 1));
    lanes tmp10 = tmp0 + tmp3 + half;
    lanes tmp13 = tmp0 - tmp3 + half;
    lanes tmp11 = tmp1 + tmp2 + half;
    lanes tmp12 = tmp1 - tmp2 + half;
    lanes z3 = in[7] + in[3];
    lanes z4 = in[5] + in[1];
    lanes z5 = (z3 + z4) * 9633u;
    lanes z2 = (in[5] + in[3]) * 20995u;

    z1 = (in[7] + in[1]) * 7373u;
    z3 = z5 - z3 * 16069u;
    z4 = z5 - z4 * 3196u;
    tmp0 = in[7] * 2446u - z1 + z3;
    tmp1 = in[5] * 16819u - z2 + z4;
    tmp2 = in[3] * 25172u - z2 + z3;
    tmp3 = in[1] * 12299u - z1 + z4;
    in[0] = (lanes)((signed_lanes)(tmp10 + tmp3) >> shift);
    in[7] = (lanes)((signed_lanes)(tmp10 - tmp3) >> shift);
    in[1] = (lanes)((signed_lanes)(tmp11 + tmp2) >> shift);
    in[6] = (lanes)((signed_lanes)(tmp11 - tmp2) >> shift);
    in[2] = (lanes)((signed_lanes)(tmp12 + tmp1) >> shift);
    in[5] = (lanes)((signed_lanes)(tmp12 - tmp1) >> shift);
    in[3] = (lanes)((signed_lanes)(tmp13 + tmp0) >> shift);
    in[4] = (lanes)((signed_lanes)(tmp13 - tmp0) >> shift);
}

/* Whether all values are from -LARGEST to LARGEST - 1. */
static inline __attribute__((always_inline)) bool are_usual(const lanes *rows)
{
    lanes bits = rows[0] + LARGEST;
    uint32_t any = 0;

    for (int i = 1; i < LANES; i++)
        bits |= rows[i] + LARGEST;
    for (int i = 0; i < LANES; i++)
        any |= bits[i];
    return any < 2 * LARGEST;
}

static bool idct_full(const int16_t *block, uint8_t *out, size_t stride)
{
    static const int pairs[LANES / 2][2] = {{0, 4}, {2, 6}, {7, 1}, {3, 5}};
    lanes rows[LANES];

    for (int i = 0; i < LANES / 2; i++) {
        lanes pair;

        memcpy(&pair, block + (size_t)2 * LANES * (size_t)i, sizeof pair);
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
        pair = pair >> 16 | pair << 16;
#endif
        rows[pairs[i][0]] = (lanes)((signed_lanes)(pair << 16) >> 16);
        rows[pairs[i][1]] = (lanes)((signed_lanes)pair >> 16);
    }
    if (!are_usual(rows))
        return false;
    idct_lanes(rows, FRACTION - KEPT);
    if (!are_usual(rows))
        return false;
    transpose(rows);
    idct_lanes(rows, FRACTION + KEPT + 3);
    transpose(rows);
    for (int i = 0; i < LANES; i++) {
        signed_lanes value = (signed_lanes)rows[i] + 128;
        byte_lanes bytes;

        value = value & (signed_lanes)(value > 0);
        value = (value & ~(signed_lanes)(value > 255)) | ((signed_lanes)(value > 255) & 255);
        bytes = __builtin_convertvector(value, byte_lanes);
        memcpy(out + (size_t)i * stride, &bytes, sizeof bytes);
    }
    return true;
}

#endif

static bool idct(const int16_t *block, int32_t last, uint8_t *out, size_t stride)
{
    int32_t flat = ((block[0] * (1 << KEPT)) + (1 << (KEPT + 2))) >> (KEPT + 3);

    if (last > 0)
        return idct_full(block, out, stride);
    for (int i = 0; i < LANES; i++)
        memset(out + (size_t)i * stride, clip(flat + 128), LANES);
    return block[0] >= -(int32_t)(LARGEST >> KEPT) && block[0] < (int32_t)(LARGEST >> KEPT);
}

/* The nearer row has weight 3 and the other row weight 1; columns have the same weights. */
static void widen(const struct jpeg_widen *rows, uint16_t *restrict sums, uint8_t *restrict out)
{
    const uint8_t *near = rows->near - (rows->has_left ? 1 : 0);
    const uint8_t *other = rows->other - (rows->has_left ? 1 : 0);
    uint16_t *first = sums + (rows->has_left ? 0 : 1);
    uint32_t n = rows->count + (rows->has_left ? 1u : 0) + (rows->has_right ? 1u : 0);
    uint32_t shift = rows->is_two_rows ? 4 : 2;
    uint32_t even = rows->is_two_rows ? 8 : 1; /* even and odd round as in jdsample.c */
    uint32_t odd = rows->is_two_rows ? 7 : 2;

    if (rows->is_two_rows)
        for (uint32_t i = 0; i < n; i++)
            first[i] = (uint16_t)(near[i] * 3 + other[i]);
    else
        for (uint32_t i = 0; i < n; i++)
            first[i] = near[i];
    if (!rows->has_left)
        sums[0] = sums[1];
    if (!rows->has_right)
        sums[rows->count + 1] = sums[rows->count];
    for (uint32_t i = 0; i < rows->count; i++) {
        out[2 * i] = (uint8_t)((sums[i + 1] * 3u + sums[i] + even) >> shift);
        out[2 * i + 1] = (uint8_t)((sums[i + 1] * 3u + sums[i + 2] + odd) >> shift);
    }
}

#ifdef __AVX2__

/* 16 results of (a * ka + b * kb + 2^15) / 2^16, rounded to integers. */
static inline __m256i mix(__m256i a, __m256i b, int16_t ka, int16_t kb)
{
    const __m256i factors =
        _mm256_set1_epi32((int32_t)((uint32_t)(uint16_t)kb << 16 | (uint16_t)ka));
    const __m256i half = _mm256_set1_epi32(1 << 15);
    __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), factors);
    __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), factors);

    low = _mm256_srai_epi32(_mm256_add_epi32(low, half), 16);
    high = _mm256_srai_epi32(_mm256_add_epi32(high, half), 16);
    return _mm256_packs_epi32(low, high);
}

/* Stores 16 pixels, interleaved from three planes. */
static inline void put_rgb(__m128i red, __m128i green, __m128i blue, uint8_t *rgb)
{
    const __m128i from[3] = {
        _mm_setr_epi8(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5),
        _mm_setr_epi8(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1),
        _mm_setr_epi8(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1)};

    for (int i = 0; i < 3; i++) {
        /* Green is one byte after red, and blue one byte after green. */
        __m128i g =
            i == 0 ? _mm_setr_epi8(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1)
            : i == 1
                ? _mm_setr_epi8(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10)
                : _mm_setr_epi8(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1);
        __m128i b =
            i == 0 ? _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1)
            : i == 1
                ? _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1)
                : _mm_setr_epi8(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15);
        __m128i part =
            _mm_or_si128(_mm_shuffle_epi8(red, from[i]),
                         _mm_or_si128(_mm_shuffle_epi8(green, g), _mm_shuffle_epi8(blue, b)));

        _mm_storeu_si128((void *)(rgb + (size_t)16 * (size_t)i), part);
    }
}

/* The formulas of the plain version below, with the integer part of each factor added separately,
 * so that the rest has 16 bits. */
static void to_rgb(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint32_t n,
                   uint8_t *restrict rgb)
{
    const __m256i centre = _mm256_set1_epi16(128);
    const __m256i zero = _mm256_setzero_si256();

    for (uint32_t begin = 0; begin < n; begin += 16) {
        __m256i y = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(luma + begin)));
        __m256i cb = _mm256_sub_epi16(
            _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(blue + begin))), centre);
        __m256i cr = _mm256_sub_epi16(
            _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(red + begin))), centre);
        __m256i r = _mm256_add_epi16(_mm256_add_epi16(y, cr), mix(cr, zero, 26345, 0));
        __m256i g = _mm256_add_epi16(_mm256_sub_epi16(y, cr), mix(cb, cr, -22554, 18734));
        __m256i b = _mm256_add_epi16(_mm256_add_epi16(y, _mm256_add_epi16(cb, cb)),
                                     mix(cb, zero, -14942, 0));
        __m256i rg = _mm256_permute4x64_epi64(_mm256_packus_epi16(r, g), 0xd8);
        __m256i bb = _mm256_permute4x64_epi64(_mm256_packus_epi16(b, b), 0xd8);

        put_rgb(_mm256_castsi256_si128(rg), _mm256_extracti128_si256(rg, 1),
                _mm256_castsi256_si128(bb), rgb + (size_t)3 * begin);
    }
}

#else

/* ITU-T T.871, section 7, in 16 bits of fraction, rounded as jdcolor.c rounds. */
static void to_rgb(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint32_t n,
                   uint8_t *restrict rgb)
{
    enum { PIECE = 32, HALF = 1 << 15 };

    for (uint32_t begin = 0; begin < n; begin += PIECE) {
        uint8_t planes[3][PIECE];

        for (uint32_t i = 0; i < PIECE; i++) {
            int32_t y = luma[begin + i];
            int32_t cb = blue[begin + i] - 128;
            int32_t cr = red[begin + i] - 128;

            planes[0][i] = clip(y + ((91881 * cr + HALF) >> 16));
            planes[1][i] = clip(y + ((-22554 * cb - 46802 * cr + HALF) >> 16));
            planes[2][i] = clip(y + ((116130 * cb + HALF) >> 16));
        }
        for (uint32_t i = 0; i < PIECE; i++)
            for (uint32_t c = 0; c < 3; c++)
                rgb[(size_t)3 * (begin + i) + c] = planes[c][i];
    }
}

#endif

const struct jpeg_kernels PICTURE_KERNELS_JPEG = {.idct = idct, .widen = widen, .to_rgb = to_rgb};
