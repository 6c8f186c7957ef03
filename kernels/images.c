/* Reference of images.cu. */
#include "kernels/layers.h"

#include <assert.h>

#include "kernels/values.h"

void kernel_images_ref(const struct kernel_images *images, const void *x, void *y)
{
    const size_t pixels = (size_t)images->height * images->width;
    const uint32_t in = images->in_channels, stored = images->stored_channels;

    assert(stored == 4 || stored == 8);
    assert(in >= 1 && images->out_channels <= KERNEL_IMAGE_CHANNELS);
    assert(in == images->out_channels || in == 1);
    for (size_t i = 0; i < images->images * pixels; i++)
        for (uint32_t c = 0; c < stored; c++) {
            const uint32_t from = in == 1 ? 0 : c;
            const size_t image = i / pixels, pixel = i % pixels;
            const size_t at =
                images->is_planar ? (image * in + from) * pixels + pixel : i * in + from;
            float value = 0.0F;

            if (c < images->out_channels) {
                assert(images->std[c] > 0.0F);
                value = images->from_bytes ? (float)((const uint8_t *)x)[at] / 255.0F
                                           : ((const float *)x)[at];
                value = (value - images->mean[c]) / images->std[c];
            }
            values_set(y, images->type, i * stored + c, value);
        }
}
