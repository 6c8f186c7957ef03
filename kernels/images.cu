/* Input images for the first convolution. Bound by memory. A thread writes one pixel, a warp reads
 * and writes adjacent ones. */
#include "kernels/layers.h"
#include "kernels/launch.cuh"

template <uint32_t STORED, typename T>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
    make_pixels(const struct kernel_images images, const void *x, T *y)
{
    const uint32_t pixels = images.height * images.width;
    const size_t image = (size_t)blockIdx.y * pixels;

    for (uint32_t i = blockIdx.x * LAUNCH_THREADS + threadIdx.x; i < pixels;
         i += gridDim.x * LAUNCH_THREADS) {
        float out[STORED] = {};

#pragma unroll
        for (uint32_t c = 0; c < KERNEL_IMAGE_CHANNELS; c++) {
            const uint32_t from = images.in_channels == 1 ? 0 : c;
            const size_t at = images.is_planar
                                  ? image * images.in_channels + (size_t)from * pixels + i
                                  : (image + i) * images.in_channels + from;

            if (c >= images.out_channels)
                break;
            out[c] = images.from_bytes ? ((const uint8_t *)x)[at] / 255.0F : ((const float *)x)[at];
            out[c] = (out[c] - images.mean[c]) / images.std[c];
        }
        pack_write<STORED>(y, (image + i) * STORED, out);
    }
}

template <uint32_t STORED>
static int images_launch(const struct kernel_images &images, const void *x, void *y,
                         struct CUstream_st *stream)
{
    const size_t pixels = (size_t)images.height * images.width;

    return launch_typed(images.type, [=](auto t) {
        return launch(make_pixels<STORED, decltype(t)>, dim3(launch_blocks(pixels), images.images),
                      stream, images, x, (decltype(t) *)y);
    });
}

int kernel_images(const struct kernel_images *images, const void *x, void *y,
                  struct CUstream_st *stream)
{
    const size_t pixels = (size_t)images->height * images->width;

    if (images->images == 0 || pixels == 0)
        return 0;
    if (images->in_channels == 0 || images->out_channels > KERNEL_IMAGE_CHANNELS ||
        (images->in_channels != images->out_channels && images->in_channels != 1) ||
        (images->stored_channels != 4 && images->stored_channels != 8) || pixels > INT32_MAX ||
        images->images > LAUNCH_GRID_Y_MAX)
        return (int)cudaErrorInvalidValue;
    return images->stored_channels == 4 ? images_launch<4>(*images, x, y, stream)
                                        : images_launch<8>(*images, x, y, stream);
}
