/* One file, compiled per instruction set: CPU_KERNELS names the table, CPU_BLOCK the channels side
 * by side. Inner loops run over one block, which the compiler turns into one or two vector
 * instructions. */
#include "worker/backend/cpu/cpu_kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define B CPU_BLOCK

/* Offset of a block of one image, in floats, for values of `pixels` pixels. */
static size_t block_at(const struct cpu_area *area, uint32_t image, uint32_t block, size_t pixels)
{
    return ((size_t)image * area->blocks + block) * pixels * B;
}

/* Adds float sums over one image's block to the totals in double: that order is fixed, so results
 * are too. */
static void add_sums(const float *restrict part, double *restrict total)
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
            const float *restrict in = x + block_at(area, i, b, pixels);
            const float *restrict base = shift + (size_t)b * B;
            float s[B] = {0}, q[B] = {0};

            for (size_t p = 0; p < pixels; p++) {
                for (int c = 0; c < B; c++) {
                    float d = in[p * B + (size_t)c] - base[c];

                    s[c] += d;
                    q[c] += d * d;
                }
            }
            add_sums(s, sum + (size_t)b * B);
            add_sums(q, squares + (size_t)b * B);
        }
    }
}

static void norm_apply(const struct cpu_area *area, const float *x, const float *scale,
                       const float *offset, bool relu, float *y)
{
    const size_t pixels = (size_t)area->height * area->width;
    const float low = relu ? 0.0F : -INFINITY;

    for (uint32_t i = 0; i < area->images; i++) {
        for (uint32_t b = 0; b < area->blocks; b++) {
            const size_t at = block_at(area, i, b, pixels);
            const float *sc = scale + (size_t)b * B, *of = offset + (size_t)b * B;

            for (size_t p = at; p < at + pixels * B; p += B) {
                for (size_t c = 0; c < B; c++) {
                    float v = x[p + c] * sc[c] + of[c];

                    y[p + c] = v < low ? low : v;
                }
            }
        }
    }
}

/* One row of 2x2 windows: `in` is the upper of two rows of `width` pixels. */
static void pool_row(const float *restrict in, uint32_t width, const float *restrict sc,
                     const float *restrict of, float *restrict y)
{
    const float *restrict below = in + (size_t)width * B;

    for (size_t p = 0; p < width / 2; p++) {
        for (size_t c = 0; c < B; c++) {
            float v0 = in[2 * p * B + c] * sc[c] + of[c];
            float v1 = in[(2 * p + 1) * B + c] * sc[c] + of[c];
            float v2 = below[2 * p * B + c] * sc[c] + of[c];
            float v3 = below[(2 * p + 1) * B + c] * sc[c] + of[c];
            float top = v0 < v1 ? v1 : v0, bottom = v2 < v3 ? v3 : v2;
            float max = top < bottom ? bottom : top;

            y[p * B + c] = max < 0.0F ? 0.0F : max;
        }
    }
}

/* The same, remembering where the maximum was. */
static void pool_row_best(const float *restrict in, uint32_t width, const float *restrict sc,
                          const float *restrict of, float *restrict y, uint8_t *restrict best,
                          float *restrict x_best)
{
    const float *restrict below = in + (size_t)width * B;

    for (size_t p = 0; p < width / 2; p++) {
        for (size_t c = 0; c < B; c++) {
            float x0 = in[2 * p * B + c], x1 = in[(2 * p + 1) * B + c];
            float x2 = below[2 * p * B + c], x3 = below[(2 * p + 1) * B + c];
            float v0 = x0 * sc[c] + of[c], v1 = x1 * sc[c] + of[c];
            float v2 = x2 * sc[c] + of[c], v3 = x3 * sc[c] + of[c];
            float max = v0, from = x0;
            int32_t at = 0;

            at = v1 > max ? 1 : at;
            from = v1 > max ? x1 : from;
            max = v1 > max ? v1 : max;
            at = v2 > max ? 2 : at;
            from = v2 > max ? x2 : from;
            max = v2 > max ? v2 : max;
            at = v3 > max ? 3 : at;
            from = v3 > max ? x3 : from;
            max = v3 > max ? v3 : max;
            y[p * B + c] = max > 0.0F ? max : max < 0.0F ? 0.0F : max;
            x_best[p * B + c] = from;
            best[p * B + c] = (uint8_t)(max <= 0.0F ? CPU_POOL_DEAD : at);
        }
    }
}

static void norm_pool_apply(const struct cpu_area *area, const float *x, const float *scale,
                            const float *offset, float *y, uint8_t *best, float *x_best)
{
    const size_t pixels = (size_t)area->height * area->width;
    const size_t row = (size_t)area->width / 2 * B;

    for (uint32_t i = 0; i < area->images; i++) {
        for (uint32_t b = 0; b < area->blocks; b++) {
            const float *in = x + block_at(area, i, b, pixels);
            const float *sc = scale + (size_t)b * B, *of = offset + (size_t)b * B;
            size_t at = block_at(area, i, b, pixels / 4);

            for (uint32_t h = 0; h < area->height / 2; h++, at += row) {
                const float *two = in + (size_t)2 * h * area->width * B;

                if (best == NULL)
                    pool_row(two, area->width, sc, of, y + at);
                else
                    pool_row_best(two, area->width, sc, of, y + at, best + at, x_best + at);
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
            const float *restrict m = mean + (size_t)b * B;
            float s[B] = {0}, q[B] = {0};

            for (size_t p = at; p < at + pixels * B; p += B) {
                for (size_t c = 0; c < B; c++) {
                    float d = y == NULL || y[p + c] > 0.0F ? dy[p + c] : 0.0F;

                    s[c] += d;
                    q[c] += d * (x[p + c] - m[c]);
                }
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
            const size_t at = block_at(area, i, k, pixels), ch = (size_t)k * B;

            for (size_t p = at; p < at + pixels * B; p += B) {
                for (size_t l = 0; l < B; l++) {
                    float d = y == NULL || y[p + l] > 0.0F ? dy[p + l] : 0.0F;

                    dx[p + l] = a[ch + l] * d + (b[ch + l] * (x[p + l] - mean[ch + l]) + c[ch + l]);
                }
            }
        }
    }
}

static void norm_pool_backward_sums(const struct cpu_area *area, const float *x_best,
                                    const uint8_t *best, const float *dy, const float *mean,
                                    double *sum, double *products)
{
    const size_t pixels = (size_t)area->height * area->width / 4;

    for (uint32_t i = 0; i < area->images; i++) {
        for (uint32_t b = 0; b < area->blocks; b++) {
            const size_t at = block_at(area, i, b, pixels);
            const float *restrict m = mean + (size_t)b * B;
            float s[B] = {0}, q[B] = {0};

            for (size_t p = at; p < at + pixels * B; p += B) {
                for (size_t c = 0; c < B; c++) {
                    float d = best[p + c] != CPU_POOL_DEAD ? dy[p + c] : 0.0F;

                    s[c] += d;
                    q[c] += d * (x_best[p + c] - m[c]);
                }
            }
            add_sums(s, sum + (size_t)b * B);
            add_sums(q, products + (size_t)b * B);
        }
    }
}

/* Place `k` of every window in one row of windows; x and dx point at its first pixel. */
static void unpool_place(const float *x, const uint8_t *restrict best, const float *restrict dy,
                         uint32_t windows, int32_t k, const float *restrict coef, float *dx)
{
    const float *restrict m = coef, *restrict a = coef + B;
    const float *restrict b = coef + (ptrdiff_t)2 * B, *restrict c = coef + (ptrdiff_t)3 * B;

    for (size_t p = 0; p < windows; p++) {
        for (size_t l = 0; l < B; l++) {
            float d = best[p * B + l] == k ? dy[p * B + l] : 0.0F;

            dx[2 * p * B + l] = a[l] * d + (b[l] * (x[2 * p * B + l] - m[l]) + c[l]);
        }
    }
}

static void norm_pool_backward_apply(const struct cpu_area *area, const float *x,
                                     const uint8_t *best, const float *dy, const float *mean,
                                     const float *a, const float *b, const float *c, float *dx)
{
    const size_t pixels = (size_t)area->height * area->width;
    const size_t row = (size_t)area->width / 2 * B;

    for (uint32_t i = 0; i < area->images; i++) {
        for (uint32_t k = 0; k < area->blocks; k++) {
            const size_t at = block_at(area, i, k, pixels), ch = (size_t)k * B;
            size_t pooled = block_at(area, i, k, pixels / 4);
            float coef[4 * B];

            memcpy(coef, mean + ch, B * sizeof(float));
            memcpy(coef + B, a + ch, B * sizeof(float));
            memcpy(coef + (ptrdiff_t)2 * B, b + ch, B * sizeof(float));
            memcpy(coef + (ptrdiff_t)3 * B, c + ch, B * sizeof(float));
            for (uint32_t h = 0; h < area->height / 2; h++, pooled += row) {
                for (uint32_t place = 0; place < 4; place++) {
                    const size_t from =
                        at + ((size_t)(2 * h + place / 2) * area->width + place % 2) * B;

                    unpool_place(x + from, best + pooled, dy + pooled, area->width / 2,
                                 (int32_t)place, coef, dx + from);
                }
            }
        }
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

/* The rows or columns of one window that lie inside the value: `*from` to `*to` places of the
 * kernel. */
static void clip(uint32_t out, const struct cpu_pool_shape *pool, uint32_t size, uint32_t *from,
                 uint32_t *to)
{
    const uint32_t start = out * pool->stride; /* in padded coordinates */

    *from = start < pool->pad ? pool->pad - start : 0;
    *to = pool->kernel;
    while (start + *to > size + pool->pad)
        (*to)--;
}

/* One window's maximum into y [B] and, where wanted, its place into best [B]. */
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
                bool more = !(v[c] <= max[c]); /* a NaN wins, as in PyTorch */

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

#define CPU_TEXT_OF(name) #name
#define CPU_TEXT(name) CPU_TEXT_OF(name)

const struct cpu_kernels CPU_KERNELS = {
    .name = CPU_TEXT(CPU_KERNELS),
    .block = B,
    .norm_sums = norm_sums,
    .norm_apply = norm_apply,
    .norm_pool_apply = norm_pool_apply,
    .norm_backward_sums = norm_backward_sums,
    .norm_backward_apply = norm_backward_apply,
    .norm_pool_backward_sums = norm_pool_backward_sums,
    .norm_pool_backward_apply = norm_pool_backward_apply,
    .relu = relu,
    .relu_backward = relu_backward,
    .max_pool = max_pool,
    .max_pool_backward = max_pool_backward,
};
