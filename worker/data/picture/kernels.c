#include "worker/data/picture/kernels.h"

#include <string.h>

#include "worker/data/picture/kernels_jpeg.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

static uint8_t clip(int32_t sum)
{
    sum >>= RESAMPLE_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

#ifdef __AVX2__

/* The weighted sums of three colours, four taps at once: the colours are arranged in pairs, and a
 * 16-bit multiply-add multiplies them by the high and the low parts of two weights. */
#ifdef __AVX512BW__

/* Lanes 0 and 1 have the high parts of taps 0, 1 and of taps 2, 3; lanes 2 and 3 the low parts. */
static inline __m128i sums_of(const uint8_t *in, const int16_t *parts, uint32_t taps)
{
    const __m512i colours = _mm512_broadcast_i64x4(
        _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 6, -1, 9, -1, 7,
                         -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    const __m512i pairs = _mm512_add_epi8(
        _mm512_set1_epi32(0x03020100),
        _mm512_setr_epi64(0, 0, 0x0404040404040404, 0x0404040404040404, 0x0808080808080808,
                          0x0808080808080808, 0x0c0c0c0c0c0c0c0c, 0x0c0c0c0c0c0c0c0c));
    __m512i sums = _mm512_setzero_si512();
    __m256i both;

    for (uint32_t t = 0; t < taps; t += RESAMPLE_GROUP) {
        __m512i pixels = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)in));
        __m512i weights = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)parts));

        sums = _mm512_add_epi32(sums, _mm512_madd_epi16(_mm512_shuffle_epi8(pixels, colours),
                                                        _mm512_shuffle_epi8(weights, pairs)));
        in += (size_t)3 * RESAMPLE_GROUP;
        parts += (size_t)2 * RESAMPLE_GROUP;
    }
    both = _mm256_slli_epi32(_mm512_castsi512_si256(sums), RESAMPLE_LOW_BITS);
    both = _mm256_add_epi32(both, _mm512_extracti64x4_epi64(sums, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
}

#else

/* Lane 0 has taps 0 and 1, lane 1 taps 2 and 3. */
static inline __m128i sums_of(const uint8_t *in, const int16_t *parts, uint32_t taps)
{
    const __m256i colours =
        _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 6, -1, 9, -1, 7,
                         -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    const __m256i highs = _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6,
                                           7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);
    const __m256i lows = _mm256_add_epi8(highs, _mm256_set1_epi8(8));
    __m256i high = _mm256_setzero_si256();
    __m256i low = high;

    for (uint32_t t = 0; t < taps; t += RESAMPLE_GROUP) {
        __m256i pixels = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)in));
        __m256i weights = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)parts));

        pixels = _mm256_shuffle_epi8(pixels, colours);
        high =
            _mm256_add_epi32(high, _mm256_madd_epi16(pixels, _mm256_shuffle_epi8(weights, highs)));
        low = _mm256_add_epi32(low, _mm256_madd_epi16(pixels, _mm256_shuffle_epi8(weights, lows)));
        in += (size_t)3 * RESAMPLE_GROUP;
        parts += (size_t)2 * RESAMPLE_GROUP;
    }
    high = _mm256_add_epi32(_mm256_slli_epi32(high, RESAMPLE_LOW_BITS), low);
    return _mm_add_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

#endif

static void resample_x(const struct resample_axis *axis, const uint8_t *row, uint8_t *out)
{
    const __m128i half = _mm_set1_epi32(1 << (RESAMPLE_BITS - 1));

    for (uint32_t i = 0; i < axis->count; i++) {
        __m128i sum = sums_of(row + (size_t)(axis->begin[i] - axis->in_begin) * 3,
                              axis->parts + (size_t)i * axis->parts_stride, axis->taps[i]);
        int32_t pixel;

        sum = _mm_srai_epi32(_mm_add_epi32(sum, half), RESAMPLE_BITS);
        sum = _mm_packus_epi16(_mm_packs_epi32(sum, sum), sum);
        pixel = _mm_cvtsi128_si32(sum);
        memcpy(out + (size_t)3 * i, &pixel, sizeof pixel); /* out is padded */
    }
}

#else

static void resample_x(const struct resample_axis *axis, const uint8_t *row, uint8_t *out)
{
    for (uint32_t i = 0; i < axis->count; i++) {
        const int32_t *weights = axis->weights + (size_t)i * axis->taps_max;
        const uint8_t *in = row + (size_t)(axis->begin[i] - axis->in_begin) * 3;
        int32_t red = 1 << (RESAMPLE_BITS - 1);
        int32_t green = red;
        int32_t blue = red;

        for (uint32_t t = 0; t < axis->taps[i]; t++, in += 3) {
            red += in[0] * weights[t];
            green += in[1] * weights[t];
            blue += in[2] * weights[t];
        }
        out[3 * i] = clip(red);
        out[3 * i + 1] = clip(green);
        out[3 * i + 2] = clip(blue);
    }
}

#endif

static void resample_y(const uint8_t *const *rows, const int32_t *weights, uint32_t n,
                       size_t byte_count, uint8_t *out)
{
    enum { PIECE = 64 };
    int32_t sums[PIECE];

    for (size_t begin = 0; begin < byte_count; begin += PIECE) {
        size_t count = byte_count - begin < PIECE ? byte_count - begin : PIECE;

        for (size_t i = 0; i < PIECE; i++)
            sums[i] = 1 << (RESAMPLE_BITS - 1);
        for (uint32_t t = 0; t < n; t++) {
            const uint8_t *row = rows[t] + begin;

            for (size_t i = 0; i < PIECE; i++) /* rows are padded */
                sums[i] += row[i] * weights[t];
        }
        for (size_t i = 0; i < count; i++)
            out[begin + i] = clip(sums[i]);
    }
}

const struct picture_kernels PICTURE_KERNELS = {.name = PICTURE_KERNELS_NAME,
                                                .jpeg = &PICTURE_KERNELS_JPEG,
                                                .resample_x = resample_x,
                                                .resample_y = resample_y};
