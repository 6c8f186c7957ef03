/* Pools on bf16. Compiled once per instruction set: CPU_KERNELS_BF16_POOL is the name of the table.
 * See kernels_bf16_pool.h. */
#include "worker/backend/cpu/kernels_bf16_pool.h"

#include <math.h>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/kernels_bf16_lanes.h"

/* Part of an axis: [first, end). */
struct span {
    uint32_t first, end;
};

/* The part of a window that is inside the image, as kernel indices. */
static struct span inside(uint32_t out, const struct cpu_pool_shape *pool, uint32_t size)
{
    const uint32_t start = out * pool->stride; /* in padded coordinates */
    const uint32_t room = size + pool->pad - start;

    return (struct span){start < pool->pad ? pool->pad - start : 0,
                         room < pool->kernel ? room : pool->kernel};
}

/* Moves `windows` on to those that read the pixel at `at` (in padded coordinates) of an axis. Call
 * for pixels in rising order, from {0, 0} on; this needs no division. */
static void advance(struct span *windows, uint32_t at, const struct cpu_pool_shape *pool,
                    uint32_t out_size)
{
    while (windows->end < out_size && windows->end * pool->stride <= at)
        windows->end++;
    while (windows->first < windows->end && windows->first * pool->stride + pool->kernel <= at)
        windows->first++;
}

/* The position of one window. Its maximum is computed for a vector of channels or for a single
 * one. */
struct window {
    const uint16_t *x;
    ptrdiff_t first;      /* index in x of kernel index 0; may be outside of the image */
    size_t row, channels; /* elements of a row of pixels, and of a pixel */
    uint32_t kernel;
    struct span rows, columns;
};

static const uint16_t *pixel_of(const struct window *window, uint32_t ky, uint32_t kx)
{
    return window->x + (window->first + (ptrdiff_t)(ky * window->row + kx * window->channels));
}

static void max_lanes(const struct window *window, size_t c, uint16_t *y, uint8_t *best)
{
    const uint32_t from = window->rows.first * window->kernel + window->columns.first;
    lanes max = load_half(pixel_of(window, window->rows.first, window->columns.first) + c);
    lanes_mask at = (lanes_mask){0} + (int32_t)from;

    for (uint32_t ky = window->rows.first; ky < window->rows.end; ky++)
        for (uint32_t kx = window->columns.first; kx < window->columns.end; kx++) {
            const lanes value = load_half(pixel_of(window, ky, kx) + c);
            const lanes_mask more = (value > max) | is_nan(value); /* as in PyTorch: a NaN wins */

            at = (more & (int32_t)(ky * window->kernel + kx)) | (~more & at);
            max = pick(more, value, max);
        }
    store_half(y + c, max);
    if (best != NULL) {
        const lanes_byte bytes = __builtin_convertvector(at, lanes_byte);

        memcpy(best + c, &bytes, sizeof bytes);
    }
}

static void max_one(const struct window *window, size_t c, uint16_t *y, uint8_t *best)
{
    uint32_t at = window->rows.first * window->kernel + window->columns.first;
    float max = half_bf16_to(pixel_of(window, window->rows.first, window->columns.first)[c]);

    for (uint32_t ky = window->rows.first; ky < window->rows.end; ky++)
        for (uint32_t kx = window->columns.first; kx < window->columns.end; kx++) {
            const float value = half_bf16_to(pixel_of(window, ky, kx)[c]);

            if (!(value > max) && !isnan(value))
                continue;
            at = ky * window->kernel + kx;
            max = value;
        }
    y[c] = half_bf16_from(max);
    if (best != NULL)
        best[c] = (uint8_t)at;
}

static void pool_pixel(const struct window *window, uint16_t *y, uint8_t *best)
{
    size_t c = 0;

    for (; c + B <= window->channels; c += B)
        max_lanes(window, c, y, best);
    for (; c < window->channels; c++)
        max_one(window, c, y, best);
}

static void max_pool(const struct cpu_pixels *in, const struct cpu_pool_shape *pool,
                     const uint16_t *x, uint16_t *y, uint8_t *best)
{
    const size_t channels = in->channels, image = (size_t)in->height * in->width * channels;
    size_t out = 0;

    for (size_t row = 0; row < (size_t)in->images * pool->out_height; row++)
        for (uint32_t ow = 0; ow < pool->out_width; ow++, out += channels) {
            const uint32_t oh = (uint32_t)(row % pool->out_height);
            const ptrdiff_t top = (ptrdiff_t)(oh * pool->stride) - pool->pad;
            const ptrdiff_t left = (ptrdiff_t)(ow * pool->stride) - pool->pad;
            const struct window window = {.x = x,
                                          .first = (ptrdiff_t)(row / pool->out_height * image) +
                                                   (top * (ptrdiff_t)in->width + left) *
                                                       (ptrdiff_t)channels,
                                          .row = in->width * channels,
                                          .channels = channels,
                                          .kernel = pool->kernel,
                                          .rows = inside(oh, pool, in->height),
                                          .columns = inside(ow, pool, in->width)};

            pool_pixel(&window, y + out, best != NULL ? best + out : NULL);
        }
}

/* One pixel of the input: the windows that read it, and the pixel's index in the first of them. */
struct covered {
    struct span rows, columns;
    uint32_t y, x; /* in padded coordinates */
};

static void unpool_pixel(const struct covered *pixel, const struct cpu_pool_shape *pool,
                         size_t channels, const uint8_t *best, const uint16_t *dy, uint16_t *dx)
{
    size_t c = 0;

    for (; c + B <= channels; c += B) {
        lanes sum = {0};

        for (uint32_t oh = pixel->rows.first; oh < pixel->rows.end; oh++)
            for (uint32_t ow = pixel->columns.first; ow < pixel->columns.end; ow++) {
                const size_t at = ((size_t)oh * pool->out_width + ow) * channels + c;
                const uint32_t place =
                    (pixel->y - oh * pool->stride) * pool->kernel + pixel->x - ow * pool->stride;
                lanes_byte bytes;

                memcpy(&bytes, best + at, sizeof bytes);
                sum += cut(__builtin_convertvector(bytes, lanes_mask) == (int32_t)place,
                           load_half(dy + at));
            }
        store_half(dx + c, sum);
    }
    for (; c < channels; c++) {
        float sum = 0.0F;

        for (uint32_t oh = pixel->rows.first; oh < pixel->rows.end; oh++)
            for (uint32_t ow = pixel->columns.first; ow < pixel->columns.end; ow++) {
                const size_t at = ((size_t)oh * pool->out_width + ow) * channels + c;

                if (best[at] ==
                    (pixel->y - oh * pool->stride) * pool->kernel + pixel->x - ow * pool->stride)
                    sum += half_bf16_to(dy[at]);
            }
        dx[c] = half_bf16_from(sum);
    }
}

static void max_pool_backward(const struct cpu_pixels *in, const struct cpu_pool_shape *pool,
                              const uint8_t *best, const uint16_t *dy, uint16_t *dx)
{
    const size_t channels = in->channels;
    const size_t out_image = (size_t)pool->out_height * pool->out_width * channels;

    for (uint32_t i = 0; i < in->images; i++, best += out_image, dy += out_image) {
        struct covered pixel = {.rows = {0, 0}};

        for (uint32_t h = 0; h < in->height; h++) {
            pixel.y = h + pool->pad;
            advance(&pixel.rows, pixel.y, pool, pool->out_height);
            pixel.columns = (struct span){0, 0};
            for (uint32_t w = 0; w < in->width; w++, dx += channels) {
                pixel.x = w + pool->pad;
                advance(&pixel.columns, pixel.x, pool, pool->out_width);
                unpool_pixel(&pixel, pool, channels, best, dy, dx);
            }
        }
    }
}

static void avg_pool(const struct cpu_pixels *in, const uint16_t *x, uint16_t *y)
{
    const size_t channels = in->channels, pixels = (size_t)in->height * in->width;

    for (uint32_t i = 0; i < in->images; i++, x += pixels * channels, y += channels) {
        size_t c = 0;

        for (; c + B <= channels; c += B) {
            lanes sum = {0};

            for (size_t p = 0; p < pixels; p++)
                sum += load_half(x + p * channels + c);
            store_half(y + c, sum / (float)pixels);
        }
        for (; c < channels; c++) {
            float sum = 0.0F;

            for (size_t p = 0; p < pixels; p++)
                sum += half_bf16_to(x[p * channels + c]);
            y[c] = half_bf16_from(sum / (float)pixels);
        }
    }
}

static void avg_pool_backward(const struct cpu_pixels *in, const uint16_t *dy, uint16_t *dx)
{
    const size_t channels = in->channels, pixels = (size_t)in->height * in->width;

    for (uint32_t i = 0; i < in->images; i++, dy += channels, dx += pixels * channels) {
        for (size_t c = 0; c < channels; c++)
            dx[c] = half_bf16_from(half_bf16_to(dy[c]) / (float)pixels);
        for (size_t p = 1; p < pixels; p++)
            memcpy(dx + p * channels, dx, channels * sizeof *dx);
    }
}

static void gather(const struct cpu_pixels *in, uint32_t step, const uint16_t *x, uint16_t *y)
{
    const size_t channels = in->channels;

    for (size_t row = 0; row < (size_t)in->images * in->height; row++)
        for (size_t w = 0; w < in->width && row % in->height % step == 0; w += step, y += channels)
            memcpy(y, x + (row * in->width + w) * channels, channels * sizeof *y);
}

static void scatter(const struct cpu_pixels *in, uint32_t step, const uint16_t *y, uint16_t *x)
{
    const size_t channels = in->channels;

    for (size_t row = 0; row < (size_t)in->images * in->height; row++)
        for (size_t w = 0; w < in->width; w++, x += channels) {
            if (row % in->height % step != 0 || w % step != 0) {
                memset(x, 0, channels * sizeof *x);
                continue;
            }
            memcpy(x, y, channels * sizeof *x);
            y += channels;
        }
}

const struct cpu_bf16_pool_kernels CPU_KERNELS_BF16_POOL = {
    .max_pool = max_pool,
    .max_pool_backward = max_pool_backward,
    .avg_pool = avg_pool,
    .avg_pool_backward = avg_pool_backward,
    .gather = gather,
    .scatter = scatter,
};
