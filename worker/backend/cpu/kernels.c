/* Compiled once per instruction set: CPU_KERNELS is the name of the table, CPU_BLOCK the number of
 * channels in a block. `lanes` is one block: gcc and clang keep it in one or more vector registers.
 */
#include "worker/backend/cpu/kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "worker/backend/cpu/kernels_bf16.h"
#include "worker/backend/cpu/kernels_bf16_pool.h"
#include "worker/backend/cpu/kernels_residual.h"

#if defined(__AVX512F__) || defined(__F16C__)
#include <immintrin.h>
#endif

#include "kernels/half.h"

#define B CPU_BLOCK

typedef float lanes __attribute__((vector_size(sizeof(float) * B), may_alias));
typedef int32_t lanes_mask __attribute__((vector_size(sizeof(int32_t) * B), may_alias));
typedef uint8_t lanes_byte __attribute__((vector_size(B), may_alias));

/* A block of a value: all arrays are aligned to whole blocks. */
static inline const lanes *at_lanes(const float *values)
{
    return (const lanes *)values;
}

static inline lanes pick(lanes_mask mask, lanes yes, lanes no)
{
    return (lanes)((mask & (lanes_mask)yes) | (~mask & (lanes_mask)no));
}

/* The larger of a and b; if `a` is a NaN, the result is. */
static inline lanes max_of(lanes a, lanes b)
{
    return pick(a < b, b, a);
}

static inline lanes cut(lanes_mask mask, lanes values)
{
    return (lanes)(mask & (lanes_mask)values);
}

/* Offset of a block of one image, in lanes, for values of `pixels` pixels. */
static size_t block_at(const struct cpu_area *area, uint32_t image, uint32_t block, size_t pixels)
{
    return ((size_t)image * area->blocks + block) * pixels;
}

/* Adds the float sums over one block of one image to the totals in double, always in this order, so
 * that results are deterministic. */
static void add_sums(lanes part, double *restrict total)
{
    for (int c = 0; c < B; c++)
        total[c] += (double)part[c];
}

static void norm_sums(const struct cpu_area *area, const float *x, const float *shift, double *sum,
                      double *squares)
{
    const size_t pixels = (size_t)area->height * area->width;

    for (uint32_t i = 0; i < area->images; i++) {
        for (uint32_t b = 0; b < area->blocks; b++) {
            const lanes *in = at_lanes(x) + block_at(area, i, b, pixels);
            const lanes base = at_lanes(shift)[b];
            lanes s[4] = {0}, q[4] = {0};
            size_t p = 0;

            for (; p + 4 <= pixels; p += 4) {
                for (size_t k = 0; k < 4; k++) {
                    lanes d = in[p + k] - base;

                    s[k] += d;
                    q[k] += d * d;
                }
            }
            for (; p < pixels; p++) {
                s[0] += in[p] - base;
                q[0] += (in[p] - base) * (in[p] - base);
            }
            add_sums((s[0] + s[1]) + (s[2] + s[3]), sum + (size_t)b * B);
            add_sums((q[0] + q[1]) + (q[2] + q[3]), squares + (size_t)b * B);
        }
    }
}

static void norm_apply(const struct cpu_area *area, const float *x, const float *scale,
                       const float *offset, bool relu, float *y)
{
    const size_t pixels = (size_t)area->height * area->width;
    const lanes half = (lanes){0} - (relu ? 0.0F : INFINITY);

    for (uint32_t i = 0; i < area->images; i++) {
        for (uint32_t b = 0; b < area->blocks; b++) {
            const lanes *in = at_lanes(x) + block_at(area, i, b, pixels);
            lanes *out = (lanes *)y + block_at(area, i, b, pixels);
            const lanes sc = at_lanes(scale)[b], of = at_lanes(offset)[b];

            for (size_t p = 0; p < pixels; p++)
                out[p] = max_of(in[p] * sc + of, half);
        }
    }
}

/* One row of 2x2 windows. `in`: the upper of its two rows of `width` pixels. */
static void pool_row(const lanes *in, uint32_t width, lanes sc, lanes of, lanes *y)
{
    const lanes *below = in + width;

    for (size_t p = 0; p < width / 2; p++) {
        lanes top = max_of(in[2 * p] * sc + of, in[2 * p + 1] * sc + of);
        lanes bottom = max_of(below[2 * p] * sc + of, below[2 * p + 1] * sc + of);

        y[p] = max_of(max_of(top, bottom), (lanes){0});
    }
}

/* The same; also stores which element was the maximum, and its x. */
static void pool_row_best(const lanes *in, uint32_t width, lanes sc, lanes of, lanes *y,
                          lanes_byte *best, lanes *x_best)
{
    const lanes *below = in + width;

    for (size_t p = 0; p < width / 2; p++) {
        const lanes x[4] = {in[2 * p], in[2 * p + 1], below[2 * p], below[2 * p + 1]};
        lanes max = x[0] * sc + of, from = x[0];
        lanes_mask at = {0};

        for (int k = 1; k < 4; k++) {
            const lanes v = x[k] * sc + of;
            const lanes_mask more = v > max;

            at = (more & k) | (~more & at);
            from = pick(more, x[k], from);
            max = pick(more, v, max);
        }
        at |= (max <= 0.0F) & CPU_POOL_DEAD;
        y[p] = max_of(max, (lanes){0});
        x_best[p] = from;
        best[p] = __builtin_convertvector(at, lanes_byte);
    }
}

static void norm_pool_apply(const struct cpu_area *area, const float *x, const float *scale,
                            const float *offset, float *y, uint8_t *best, float *x_best)
{
    const size_t pixels = (size_t)area->height * area->width;
    const uint32_t width = area->width;

    for (uint32_t i = 0; i < area->images; i++) {
        for (uint32_t b = 0; b < area->blocks; b++) {
            const lanes *in = at_lanes(x) + block_at(area, i, b, pixels);
            const lanes sc = at_lanes(scale)[b], of = at_lanes(offset)[b];
            size_t at = block_at(area, i, b, pixels / 4);

            for (size_t h = 0; h < area->height / 2; h++, at += width / 2) {
                if (best == NULL)
                    pool_row(in + 2 * h * width, width, sc, of, (lanes *)y + at);
                else
                    pool_row_best(in + 2 * h * width, width, sc, of, (lanes *)y + at,
                                  (lanes_byte *)best + at, (lanes *)x_best + at);
            }
        }
    }
}

static void norm_backward_sums(const struct cpu_area *area, const float *x, const float *y,
                               const float *dy, const float *mean, double *sum, double *products)
{
    const size_t pixels = (size_t)area->height * area->width;

    for (uint32_t i = 0; i < area->images; i++) {
        for (uint32_t b = 0; b < area->blocks; b++) {
            const size_t at = block_at(area, i, b, pixels);
            const lanes *in = at_lanes(x) + at, *grad = at_lanes(dy) + at;
            const lanes *out = y != NULL ? at_lanes(y) + at : NULL;
            const lanes m = at_lanes(mean)[b];
            lanes s = {0}, q = {0};

            for (size_t p = 0; p < pixels; p++) {
                lanes d = out == NULL ? grad[p] : cut(out[p] > 0.0F, grad[p]);

                s += d;
                q += d * (in[p] - m);
            }
            add_sums(s, sum + (size_t)b * B);
            add_sums(q, products + (size_t)b * B);
        }
    }
}

static void norm_backward_apply(const struct cpu_area *area, const float *x, const float *y,
                                const float *dy, const float *mean, const float *a, const float *b,
                                const float *c, float *dx)
{
    const size_t pixels = (size_t)area->height * area->width;

    for (uint32_t i = 0; i < area->images; i++) {
        for (uint32_t k = 0; k < area->blocks; k++) {
            const size_t at = block_at(area, i, k, pixels);
            const lanes *in = at_lanes(x) + at, *grad = at_lanes(dy) + at;
            const lanes *out = y != NULL ? at_lanes(y) + at : NULL;
            const lanes m = at_lanes(mean)[k], fa = at_lanes(a)[k], fb = at_lanes(b)[k];
            const lanes fc = at_lanes(c)[k];

            for (size_t p = 0; p < pixels; p++) {
                lanes d = out == NULL ? grad[p] : cut(out[p] > 0.0F, grad[p]);

                ((lanes *)dx + at)[p] = fa * d + (fb * (in[p] - m) + fc);
            }
        }
    }
}

static inline lanes_mask place_of(lanes_byte best)
{
    return __builtin_convertvector(best, lanes_mask);
}

static void norm_pool_backward_sums(const struct cpu_area *area, const float *x_best,
                                    const uint8_t *best, const float *dy, const float *mean,
                                    double *sum, double *products)
{
    const size_t pixels = (size_t)area->height * area->width / 4;

    for (uint32_t i = 0; i < area->images; i++) {
        for (uint32_t b = 0; b < area->blocks; b++) {
            const size_t at = block_at(area, i, b, pixels);
            const lanes *in = at_lanes(x_best) + at, *grad = at_lanes(dy) + at;
            const lanes_byte *place = (const lanes_byte *)best + at;
            const lanes m = at_lanes(mean)[b];
            lanes s[2] = {0}, q[2] = {0};

            for (size_t p = 0; p < pixels; p++) {
                lanes d = cut(place_of(place[p]) != CPU_POOL_DEAD, grad[p]);

                s[p % 2] += d;
                q[p % 2] += d * (in[p] - m);
            }
            add_sums(s[0] + s[1], sum + (size_t)b * B);
            add_sums(q[0] + q[1], products + (size_t)b * B);
        }
    }
}

/* Coefficients of dx for one block: dx = a d + b (x - mean) + c. */
struct unpool {
    lanes mean, a, b, c;
};

/* One row of windows. x, dx: the upper of its two rows of `width` pixels. */
static void unpool_row(const struct unpool *u, const lanes *x, const lanes_byte *best,
                       const lanes *dy, uint32_t width, lanes *dx)
{
    for (size_t p = 0; p < width / 2; p++) {
        const lanes_mask place = place_of(best[p]);
        const lanes d = u->a * dy[p];

        for (int k = 0; k < 4; k++) {
            const size_t at = 2 * p + (size_t)(k / 2) * width + (size_t)(k % 2);

            dx[at] = cut(place == k, d) + (u->b * (x[at] - u->mean) + u->c);
        }
    }
}

static void norm_pool_backward_apply(const struct cpu_area *area, const float *x,
                                     const uint8_t *best, const float *dy, const float *mean,
                                     const float *a, const float *b, const float *c, float *dx)
{
    const size_t pixels = (size_t)area->height * area->width;
    const uint32_t width = area->width;

    for (uint32_t i = 0; i < area->images; i++) {
        for (uint32_t k = 0; k < area->blocks; k++) {
            const struct unpool u = {at_lanes(mean)[k], at_lanes(a)[k], at_lanes(b)[k],
                                     at_lanes(c)[k]};
            size_t at = block_at(area, i, k, pixels), pooled = block_at(area, i, k, pixels / 4);

            for (size_t h = 0; h < area->height / 2; h++, pooled += width / 2, at += 2 * width)
                unpool_row(&u, at_lanes(x) + at, (const lanes_byte *)best + pooled,
                           at_lanes(dy) + pooled, width, (lanes *)dx + at);
        }
    }
}

/* Products of one row with `count` rows of weights. Inlined, so that `count` is a constant. */
static inline void row_products(const lanes *x, const lanes *weights, size_t steps, size_t count,
                                float *y)
{
    lanes sums[4] = {0};

    for (size_t s = 0; s < steps; s++)
        for (size_t k = 0; k < count; k++)
            sums[k] += x[s] * weights[k * steps + s];
    for (size_t k = 0; k < count; k++) {
        y[k] = 0.0F;
        for (int c = 0; c < B; c++)
            y[k] += sums[k][c];
    }
}

static void linear(const float *x, const float *weights, const float *bias, uint32_t n,
                   size_t features, uint32_t outputs, float *y)
{
    const size_t steps = features / B;

    for (uint32_t i = 0; i < n; i++) {
        const lanes *row = at_lanes(x) + i * steps;
        float *out = y + (size_t)i * outputs;
        uint32_t o = 0;

        for (; o + 4 <= outputs; o += 4)
            row_products(row, at_lanes(weights) + o * steps, steps, 4, out + o);
        for (; o + 2 <= outputs; o += 2)
            row_products(row, at_lanes(weights) + o * steps, steps, 2, out + o);
        for (; o < outputs; o++)
            row_products(row, at_lanes(weights) + o * steps, steps, 1, out + o);
        for (o = 0; bias != NULL && o < outputs; o++)
            out[o] += bias[o];
    }
}

static void relu(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] < 0.0F ? 0.0F : x[i];
}

static void relu_backward(const float *y, const float *dy, size_t n, float *dx)
{
    for (size_t i = 0; i < n; i++)
        dx[i] = y[i] > 0.0F ? dy[i] : 0.0F;
}

/* The part of a window that is inside the image, in one dimension: kernel indices [*from, *to). */
static void clip(uint32_t out, const struct cpu_pool_shape *pool, uint32_t size, uint32_t *from,
                 uint32_t *to)
{
    const uint32_t start = out * pool->stride; /* in padded coordinates */

    *from = start < pool->pad ? pool->pad - start : 0;
    *to = pool->kernel;
    while (start + *to > size + pool->pad)
        (*to)--;
}

/* The maximum of one window into y [B]; its position in the window into best [B] unless that is
 * NULL. */
static void pool_window(const struct cpu_area *area, const struct cpu_pool_shape *pool,
                        const float *in, uint32_t oh, uint32_t ow, float *y, uint8_t *best)
{
    uint32_t h0, h1, w0, w1;
    float max[B];
    uint8_t at[B];

    clip(oh, pool, area->height, &h0, &h1);
    clip(ow, pool, area->width, &w0, &w1);
    for (int c = 0; c < B; c++) {
        max[c] = -FLT_MAX;
        at[c] = (uint8_t)(h0 * pool->kernel + w0);
    }
    for (uint32_t kh = h0; kh < h1; kh++) {
        for (uint32_t kw = w0; kw < w1; kw++) {
            const size_t row = (size_t)oh * pool->stride + kh - pool->pad;
            const float *v =
                in + (row * area->width + (size_t)ow * pool->stride + kw - pool->pad) * B;

            for (int c = 0; c < B; c++) {
                bool more = v[c] > max[c] || v[c] != v[c]; /* a NaN wins, as in PyTorch */

                at[c] = more ? (uint8_t)(kh * pool->kernel + kw) : at[c];
                max[c] = more ? v[c] : max[c];
            }
        }
    }
    memcpy(y, max, sizeof max);
    if (best != NULL)
        memcpy(best, at, sizeof at);
}

static void max_pool(const struct cpu_area *area, const struct cpu_pool_shape *pool, const float *x,
                     float *y, uint8_t *best)
{
    const size_t pixels = (size_t)area->height * area->width;
    const size_t planes = (size_t)area->images * area->blocks;
    size_t out = 0;

    for (size_t plane = 0; plane < planes; plane++)
        for (uint32_t oh = 0; oh < pool->out_height; oh++)
            for (uint32_t ow = 0; ow < pool->out_width; ow++, out += B)
                pool_window(area, pool, x + plane * pixels * B, oh, ow, y + out,
                            best == NULL ? NULL : best + out);
}

static void max_pool_backward(const struct cpu_area *area, const struct cpu_pool_shape *pool,
                              const uint8_t *best, const float *dy, float *dx)
{
    const size_t pixels = (size_t)area->height * area->width;
    const size_t planes = (size_t)area->images * area->blocks;
    const size_t out_pixels = (size_t)pool->out_height * pool->out_width;

    memset(dx, 0, planes * pixels * B * sizeof(float));
    for (size_t out = 0; out < planes * out_pixels; out++) {
        const size_t oh = out % out_pixels / pool->out_width, ow = out % pool->out_width;
        float *plane = dx + out / out_pixels * pixels * B;

        for (size_t c = 0; c < B; c++) {
            const size_t h = oh * pool->stride + best[out * B + c] / pool->kernel - pool->pad;
            const size_t w = ow * pool->stride + best[out * B + c] % pool->kernel - pool->pad;

            plane[(h * area->width + w) * B + c] += dy[out * B + c];
        }
    }
}

/* Rounds as many of n elements as fill whole vectors; returns how many. */
static size_t round_f16_vectors(const float *x, size_t n, float *y)
{
    size_t i = 0;

#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16) {
        __m256i half = _mm512_cvtps_ph(_mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        _mm512_storeu_ps(y + i, _mm512_cvtph_ps(half));
    }
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(half));
    }
#else
    (void)x;
    (void)n;
    (void)y;
#endif
    return i;
}

static void round_f16(const float *x, size_t n, float *y)
{
    for (size_t i = round_f16_vectors(x, n, y); i < n; i++)
        y[i] = half_f16_to(half_f16_from(x[i]));
}

static void round_bf16(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = half_float_bits(x[i]);
        uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
        bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;

        y[i] = half_bits_float(is_nan ? 0x7fff0000U : rounded);
    }
}

/* Which outputs along one axis read an input pixel with this offset in the window. */
struct span {
    uint32_t first, end;
};

static struct span outputs_of(uint32_t in, uint32_t out, uint32_t offset, uint32_t stride,
                              uint32_t pad)
{
    const uint32_t most = in + pad > offset ? (in + pad - offset - 1) / stride + 1 : 0;
    const struct span span = {.first = offset < pad ? (pad - offset + stride - 1) / stride : 0,
                              .end = most < out ? most : out};

    return span;
}

/* One weight for one block of channels, over one image. */
static lanes weight_of_image(const struct cpu_area *area, const struct cpu_rows_conv *conv,
                             const float *x, const lanes *dy, uint32_t ky, uint32_t kx)
{
    const struct span rows = outputs_of(conv->in_height, area->height, ky, conv->stride, conv->pad);
    const struct span columns =
        outputs_of(conv->in_width, area->width, kx, conv->stride, conv->pad);
    lanes sum = {0};

    for (uint32_t row = rows.first; row < rows.end; row++) {
        const lanes *line = dy + (size_t)row * area->width;
        const float *from = x + (size_t)(row * conv->stride + ky - conv->pad) * conv->in_width;

        for (uint32_t column = columns.first; column < columns.end; column++)
            sum += line[column] * from[column * conv->stride + kx - conv->pad];
    }
    return sum;
}

/* Adds the channels of a block without padding; the channels of `to` are `stride` floats apart. */
static void add_channels(lanes sum, uint32_t channels, size_t stride, float *to)
{
    for (uint32_t c = 0; c < channels; c++)
        to[c * stride] += sum[c];
}

static void conv_weights_block(const struct cpu_area *area, const struct cpu_rows_conv *conv,
                               const float *x, const lanes *dy, uint32_t channels, float *weights)
{
    const size_t window = (size_t)conv->kernel * conv->kernel;

    for (uint32_t i = 0; i < conv->channels; i++)
        for (uint32_t ky = 0; ky < conv->kernel; ky++)
            for (uint32_t kx = 0; kx < conv->kernel; kx++)
                add_channels(weight_of_image(area, conv,
                                             x + (size_t)i * conv->in_height * conv->in_width, dy,
                                             ky, kx),
                             channels, conv->channels * window,
                             weights + i * window + (size_t)ky * conv->kernel + kx);
}

static void conv_weights(const struct cpu_area *area, const struct cpu_rows_conv *conv,
                         const float *x, const float *dy, float *weights, float *bias)
{
    const size_t pixels = (size_t)area->height * area->width;
    const size_t per_channel = (size_t)conv->channels * conv->kernel * conv->kernel;
    const size_t image = (size_t)conv->channels * conv->in_height * conv->in_width;

    memset(weights, 0, conv->out_channels * per_channel * sizeof *weights);
    if (bias != NULL)
        memset(bias, 0, conv->out_channels * sizeof *bias);
    for (uint32_t n = 0; n < area->images; n++)
        for (uint32_t b = 0; b < area->blocks; b++) {
            const lanes *from = at_lanes(dy) + block_at(area, n, b, pixels);
            const uint32_t left = conv->out_channels - b * B, channels = left < B ? left : B;
            lanes sum = {0};

            conv_weights_block(area, conv, x + n * image, from, channels,
                               weights + (size_t)b * B * per_channel);
            for (size_t p = 0; p < pixels && bias != NULL; p++)
                sum += from[p];
            if (bias != NULL)
                add_channels(sum, channels, 1, bias + (size_t)b * B);
        }
}

#define CPU_TEXT_OF(name) #name
#define CPU_TEXT(name) CPU_TEXT_OF(name)

const struct cpu_kernels CPU_KERNELS = {
    .name = CPU_TEXT(CPU_KERNELS),
    .block = B,
    .residual = &CPU_KERNELS_RESIDUAL,
    .bf16 = &CPU_KERNELS_BF16,
    .bf16_pool = &CPU_KERNELS_BF16_POOL,
    .norm_sums = norm_sums,
    .norm_apply = norm_apply,
    .norm_pool_apply = norm_pool_apply,
    .norm_backward_sums = norm_backward_sums,
    .norm_backward_apply = norm_backward_apply,
    .norm_pool_backward_sums = norm_pool_backward_sums,
    .norm_pool_backward_apply = norm_pool_backward_apply,
    .linear = linear,
    .conv_weights = conv_weights,
    .relu = relu,
    .relu_backward = relu_backward,
    .max_pool = max_pool,
    .max_pool_backward = max_pool_backward,
    .round_f16 = round_f16,
    .round_bf16 = round_bf16,
};
