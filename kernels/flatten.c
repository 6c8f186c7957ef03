/* The order of features after a flatten; host code, see layers.h. */
#include "kernels/layers.h"

#include <assert.h>

void kernel_flatten_pack(const struct kernel_flatten *flatten, uint32_t outputs, const float *from,
                         float *stored)
{
    const size_t pixels = (size_t)flatten->height * flatten->width;
    const size_t channels = flatten->channels, padded = flatten->padded_channels;

    assert(padded >= channels && from != stored);
    for (size_t o = 0; o < outputs; o++)
        for (size_t p = 0; p < pixels; p++)
            for (size_t c = 0; c < padded; c++)
                stored[(o * pixels + p) * padded + c] =
                    c < channels ? from[(o * channels + c) * pixels + p] : 0.0F;
}

void kernel_flatten_unpack(const struct kernel_flatten *flatten, uint32_t outputs,
                           const float *stored, float *to)
{
    const size_t pixels = (size_t)flatten->height * flatten->width;
    const size_t channels = flatten->channels, padded = flatten->padded_channels;

    assert(padded >= channels);
    for (size_t o = 0; o < outputs; o++)
        for (size_t c = 0; c < channels; c++)
            for (size_t p = 0; p < pixels; p++)
                to[(o * channels + c) * pixels + p] = stored[(o * pixels + p) * padded + c];
}
