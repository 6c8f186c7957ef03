/* Reference of avg_pool.cu. */
#include "kernels/layers.h"

#include <assert.h>

#include "kernels/values.h"

void kernel_avg_pool_ref(const void *x, void *y, enum kernel_type type, uint32_t images,
                         uint32_t pixels, uint32_t channels)
{
    assert(channels % 4 == 0 && pixels > 0);
    for (size_t n = 0; n < images; n++)
        for (size_t c = 0; c < channels; c++) {
            float sum = 0.0F;

            for (size_t p = 0; p < pixels; p++)
                sum += values_get(x, type, (n * pixels + p) * channels + c);
            values_set(y, type, n * channels + c, sum / (float)pixels);
        }
}

void kernel_avg_pool_backward_ref(const void *dy, void *dx, enum kernel_type type, uint32_t images,
                                  uint32_t pixels, uint32_t channels)
{
    assert(channels % 4 == 0 && pixels > 0);
    for (size_t n = 0; n < images; n++)
        for (size_t p = 0; p < pixels; p++)
            for (size_t c = 0; c < channels; c++)
                values_set(dx, type, (n * pixels + p) * channels + c,
                           values_get(dy, type, n * channels + c) / (float)pixels);
}
