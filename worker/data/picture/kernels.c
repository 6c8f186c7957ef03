#include "worker/data/picture/kernels.h"

static uint8_t clip(int32_t sum)
{
    sum >>= RESAMPLE_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

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

const struct picture_kernels PICTURE_KERNELS = {
    .name = PICTURE_KERNELS_NAME, .resample_x = resample_x, .resample_y = resample_y};
