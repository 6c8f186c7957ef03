/* Batch norm and element-wise loops on bf16. Compiled once per instruction set: CPU_KERNELS_BF16 is
 * the name of the table. See kernels_bf16.h.
 *
 * Sums are per image in fp32, then added in double, in the order of kernels.c. An image is read
 * tile by tile, so that it is loaded into the cache only once: in a tile a few channels at a time
 * have their sums in registers. Between tiles the sums of SLAB channels are kept in memory. */
#include "worker/backend/cpu/kernels_bf16.h"

#include <math.h>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/kernels_bf16_lanes.h"

#define GROUP 2  /* vectors of channels with sums in registers: a cache line */
#define SLAB 256 /* channels: a multiple of GROUP * B */
#define WAYS 4   /* partial sums per channel: pixel p is added to number p % WAYS */
#define TILE_BYTES 16384

/* Sums of the channels of a slab over a part of an image. */
struct sums {
    float first[WAYS][SLAB], second[WAYS][SLAB];
};

/* A part of an image: rows of `channels` elements, of which the loops read `count`. The next part
 * begins `ahead` elements later. */
struct tile {
    size_t rows, channels, count, ahead;
};

/* Pixels [at, ...) of an image, channels [from, ...). */
static struct tile tile_of(struct cpu_rows shape, size_t at, size_t from)
{
    const size_t left = shape.channels - from, most = TILE_BYTES / sizeof(uint16_t);
    const size_t rows = (most / shape.channels / WAYS + 1) * WAYS;

    return (struct tile){.rows = shape.pixels - at < rows ? shape.pixels - at : rows,
                         .channels = shape.channels,
                         .count = left < SLAB ? left : SLAB,
                         .ahead = rows * shape.channels};
}

static void clear_sums(struct sums *sums, size_t ways, size_t count)
{
    for (size_t w = 0; w < ways; w++) {
        memset(sums->first[w], 0, count * sizeof(float));
        memset(sums->second[w], 0, count * sizeof(float));
    }
}

static void add_double(float sums[WAYS][SLAB], size_t ways, size_t count, double *total)
{
    for (size_t c = 0; c < count; c++)
        total[c] += ways == 1 ? (double)sums[0][c]
                              : (double)((sums[0][c] + sums[1][c]) + (sums[2][c] + sums[3][c]));
}

/* Functions that take `vectors` are inlined, so that `vectors` is a constant. */
static inline void sum_group(const uint16_t *x, size_t vectors, struct tile tile, size_t c,
                             const float *shift, struct sums *sums)
{
    lanes base[GROUP], s[WAYS][GROUP], q[WAYS][GROUP];
    size_t r = 0;

    for (size_t k = 0; k < vectors; k++)
        base[k] = load(shift + c + k * B);
    for (size_t w = 0; w < WAYS; w++)
        for (size_t k = 0; k < vectors; k++) {
            s[w][k] = load(&sums->first[w][c + k * B]);
            q[w][k] = load(&sums->second[w][c + k * B]);
        }
    for (; r + WAYS <= tile.rows; r += WAYS)
        for (size_t w = 0; w < WAYS; w++) {
            const uint16_t *row = x + (r + w) * tile.channels + c;

            __builtin_prefetch(row + tile.ahead);
            for (size_t k = 0; k < vectors; k++) {
                const lanes d = load_half(row + k * B) - base[k];

                s[w][k] += d;
                q[w][k] += d * d;
            }
        }
    for (; r < tile.rows; r++)
        for (size_t k = 0; k < vectors; k++) {
            const lanes d = load_half(x + r * tile.channels + c + k * B) - base[k];

            s[0][k] += d;
            q[0][k] += d * d;
        }
    for (size_t w = 0; w < WAYS; w++)
        for (size_t k = 0; k < vectors; k++) {
            store(&sums->first[w][c + k * B], s[w][k]);
            store(&sums->second[w][c + k * B], q[w][k]);
        }
}

static void sum_tile(const uint16_t *x, struct tile tile, const float *shift, struct sums *sums)
{
    const size_t whole = tile.rows / WAYS * WAYS;
    size_t c = 0;

    for (; c + GROUP * B <= tile.count; c += GROUP * B)
        sum_group(x, GROUP, tile, c, shift, sums);
    for (; c + B <= tile.count; c += B)
        sum_group(x, 1, tile, c, shift, sums);
    for (; c < tile.count; c++)
        for (size_t r = 0; r < tile.rows; r++) {
            const float d = half_bf16_to(x[r * tile.channels + c]) - shift[c];
            const size_t w = r < whole ? r % WAYS : 0;

            sums->first[w][c] += d;
            sums->second[w][c] += d * d;
        }
}

static void norm_sums(struct cpu_rows shape, const uint16_t *x, const float *shift, double *sum,
                      double *squares)
{
    const size_t channels = shape.channels;
    struct sums sums;

    for (size_t c = 0; c < channels; c += SLAB)
        for (size_t i = 0; i < shape.images; i++) {
            const uint16_t *image = x + i * shape.pixels * channels + c;
            struct tile tile = tile_of(shape, 0, c);

            clear_sums(&sums, WAYS, tile.count);
            for (size_t at = 0; at < shape.pixels; at += tile.rows) {
                tile = tile_of(shape, at, c);
                sum_tile(image + at * channels, tile, shift + c, &sums);
            }
            add_double(sums.first, WAYS, tile.count, sum + c);
            add_double(sums.second, WAYS, tile.count, squares + c);
        }
}

static inline lanes norm_lanes(const uint16_t *x, const float *scale, const float *offset)
{
    return load_half(x) * load(scale) + load(offset);
}

static inline float norm_one(uint16_t x, float scale, float offset)
{
    return half_bf16_to(x) * scale + offset;
}

static void norm_row(size_t channels, const uint16_t *x, const float *scale, const float *offset,
                     float least, uint16_t *y)
{
    size_t c = 0;

    for (; c + B <= channels; c += B)
        store_half(y + c, at_least(least, norm_lanes(x + c, scale + c, offset + c)));
    for (; c < channels; c++)
        y[c] = half_bf16_from(at_least_one(least, norm_one(x[c], scale[c], offset[c])));
}

static inline void norm_add_row(size_t channels, const uint16_t *x, const float *scale,
                                const float *offset, const uint16_t *other, bool rounds_norm,
                                float least, uint16_t *y)
{
    size_t c = 0;

    for (; c + B <= channels; c += B) {
        const lanes norm = norm_lanes(x + c, scale + c, offset + c);
        const lanes summand = rounds_norm ? round_lanes(norm) : norm;

        store_half(y + c, at_least(least, summand + load_half(other + c)));
    }
    for (; c < channels; c++) {
        const float norm = norm_one(x[c], scale[c], offset[c]);
        const float summand = rounds_norm ? round_one(norm) : norm;

        y[c] = half_bf16_from(at_least_one(least, summand + half_bf16_to(other[c])));
    }
}

static void norm_apply(struct cpu_rows shape, const uint16_t *x, const float *scale,
                       const float *offset, const struct cpu_norm_add *add, bool relu, uint16_t *y)
{
    const size_t channels = shape.channels, count = shape.images * shape.pixels * channels;
    const float least = relu ? 0.0F : -INFINITY;

    for (size_t at = 0; at < count; at += channels)
        if (add->other == NULL)
            norm_row(channels, x + at, scale, offset, least, y + at);
        else if (add->rounds_norm)
            norm_add_row(channels, x + at, scale, offset, add->other + at, true, least, y + at);
        else
            norm_add_row(channels, x + at, scale, offset, add->other + at, false, least, y + at);
}

/* dy from channel `c` on, set to 0 where the ReLU after the norm was 0. */
static inline lanes cut_lanes(const struct cpu_norm_relu *relu, const uint16_t *x, size_t c,
                              lanes dy)
{
    return relu->scale == NULL
               ? dy
               : cut(norm_lanes(x, relu->scale + c, relu->offset + c) > ROUNDS_TO_ZERO, dy);
}

static inline float cut_one(const struct cpu_norm_relu *relu, uint16_t x, size_t c, float dy)
{
    return relu->scale == NULL || norm_one(x, relu->scale[c], relu->offset[c]) > ROUNDS_TO_ZERO
               ? dy
               : 0.0F;
}

static const struct cpu_norm_relu no_relu = {NULL, NULL};

/* The gradients of a tile, and the mask of the ReLU: `relu`; or y, and then the masked gradients
 * are also written back. */
struct gradients {
    const uint16_t *x, *dy, *y;
    uint16_t *cut_dy; /* dy itself, or NULL */
    struct cpu_norm_relu relu;
    const float *mean;
};

static struct gradients gradients_at(const struct gradients *all, size_t at, size_t from)
{
    struct gradients g = *all;

    g.x += at;
    g.dy += at;
    g.mean += from;
    if (g.y != NULL) {
        g.y += at;
        g.cut_dy += at;
    }
    if (g.relu.scale != NULL) {
        g.relu.scale += from;
        g.relu.offset += from;
    }
    return g;
}

static inline lanes gradient_lanes(const struct gradients *g, const struct cpu_norm_relu *relu,
                                   size_t at, size_t c)
{
    lanes dy = load_half(g->dy + at);
    lanes_half half;

    if (g->y == NULL)
        return cut_lanes(relu, g->x + at, c, dy);
    dy = cut(load_half(g->y + at) > 0.0F, dy);
    half = __builtin_convertvector((lanes_bits)dy >> 16, lanes_half);
    memcpy(g->cut_dy + at, &half, sizeof half);
    return dy;
}

static inline void gradient_group(const struct gradients *g, const struct cpu_norm_relu *relu,
                                  size_t vectors, struct tile tile, size_t c, struct sums *sums)
{
    lanes mean[GROUP], s[GROUP], q[GROUP];

    for (size_t k = 0; k < vectors; k++) {
        mean[k] = load(g->mean + c + k * B);
        s[k] = load(&sums->first[0][c + k * B]);
        q[k] = load(&sums->second[0][c + k * B]);
    }
    for (size_t r = 0, at = c; r < tile.rows; r++, at += tile.channels) {
        __builtin_prefetch(g->x + at + tile.ahead);
        __builtin_prefetch(g->dy + at + tile.ahead);
        for (size_t k = 0; k < vectors; k++) {
            const lanes dy = gradient_lanes(g, relu, at + k * B, c + k * B);

            s[k] += dy;
            q[k] += dy * (load_half(g->x + at + k * B) - mean[k]);
        }
    }
    for (size_t k = 0; k < vectors; k++) {
        store(&sums->first[0][c + k * B], s[k]);
        store(&sums->second[0][c + k * B], q[k]);
    }
}

static float gradient_one(const struct gradients *g, size_t at, size_t c)
{
    if (g->y == NULL)
        return cut_one(&g->relu, g->x[at], c, half_bf16_to(g->dy[at]));
    if (half_bf16_to(g->y[at]) > 0.0F)
        return half_bf16_to(g->dy[at]);
    g->cut_dy[at] = 0;
    return 0.0F;
}

/* Inlined; without a ReLU `relu` is a constant, so that the loop has no branches. */
static inline void gradient_tile(const struct gradients *g, const struct cpu_norm_relu *relu,
                                 struct tile tile, struct sums *sums)
{
    size_t c = 0;

    for (; c + GROUP * B <= tile.count; c += GROUP * B)
        gradient_group(g, relu, GROUP, tile, c, sums);
    for (; c + B <= tile.count; c += B)
        gradient_group(g, relu, 1, tile, c, sums);
    for (; c < tile.count; c++)
        for (size_t r = 0; r < tile.rows; r++) {
            const size_t at = r * tile.channels + c;
            const float dy = gradient_one(g, at, c);

            sums->first[0][c] += dy;
            sums->second[0][c] += dy * (half_bf16_to(g->x[at]) - g->mean[c]);
        }
}

static void sum_gradients(struct cpu_rows shape, const struct gradients *all, double *sum,
                          double *products)
{
    const size_t channels = shape.channels;
    struct sums sums;

    for (size_t c = 0; c < channels; c += SLAB)
        for (size_t i = 0; i < shape.images; i++) {
            struct tile tile = tile_of(shape, 0, c);

            clear_sums(&sums, 1, tile.count);
            for (size_t at = 0; at < shape.pixels; at += tile.rows) {
                const struct gradients g =
                    gradients_at(all, (i * shape.pixels + at) * channels + c, c);

                tile = tile_of(shape, at, c);
                if (g.relu.scale == NULL)
                    gradient_tile(&g, &no_relu, tile, &sums);
                else
                    gradient_tile(&g, &g.relu, tile, &sums);
            }
            add_double(sums.first, 1, tile.count, sum + c);
            add_double(sums.second, 1, tile.count, products + c);
        }
}

static void norm_backward_sums(struct cpu_rows shape, const uint16_t *x,
                               const struct cpu_norm_relu *relu, const uint16_t *dy,
                               const float *mean, double *sum, double *products)
{
    const struct gradients all = {.x = x, .dy = dy, .relu = *relu, .mean = mean};

    sum_gradients(shape, &all, sum, products);
}

static void norm_add_backward_sums(struct cpu_rows shape, const uint16_t *x, const uint16_t *y,
                                   uint16_t *dy, const float *mean, double *sum, double *products)
{
    const struct gradients all = {.x = x, .dy = dy, .y = y, .cut_dy = dy, .mean = mean};

    sum_gradients(shape, &all, sum, products);
}

static inline void dx_row(size_t channels, const uint16_t *x, const struct cpu_norm_relu *relu,
                          const uint16_t *dy, const struct cpu_norm_dx *of, uint16_t *dx)
{
    size_t c = 0;

    for (; c + B <= channels; c += B) {
        const lanes d = cut_lanes(relu, x + c, c, load_half(dy + c));
        const lanes off = load_half(x + c) - load(of->mean + c);

        store_half(dx + c, load(of->a + c) * d + (load(of->b + c) * off + load(of->c + c)));
    }
    for (; c < channels; c++) {
        const float d = cut_one(relu, x[c], c, half_bf16_to(dy[c]));
        const float off = half_bf16_to(x[c]) - of->mean[c];

        dx[c] = half_bf16_from(of->a[c] * d + (of->b[c] * off + of->c[c]));
    }
}

static void norm_backward_apply(struct cpu_rows shape, const uint16_t *x,
                                const struct cpu_norm_relu *relu, const uint16_t *dy,
                                const struct cpu_norm_dx *dx_of, uint16_t *dx)
{
    const size_t channels = shape.channels, count = shape.images * shape.pixels * channels;

    if (relu->scale == NULL)
        for (size_t at = 0; at < count; at += channels)
            dx_row(channels, x + at, &no_relu, dy + at, dx_of, dx + at);
    else
        for (size_t at = 0; at < count; at += channels)
            dx_row(channels, x + at, relu, dy + at, dx_of, dx + at);
}

static void relu(const uint16_t *x, size_t n, uint16_t *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = half_bf16_to(x[i]) < 0.0F ? 0 : x[i];
}

static void relu_backward(const uint16_t *y, const uint16_t *dy, size_t n, uint16_t *dx)
{
    for (size_t i = 0; i < n; i++)
        dx[i] = half_bf16_to(y[i]) > 0.0F ? dy[i] : 0;
}

static void add(const uint16_t *a, const uint16_t *b, bool relu, size_t n, uint16_t *y)
{
    const float least = relu ? 0.0F : -INFINITY;
    size_t i = 0;

    for (; i + B <= n; i += B)
        store_half(y + i, at_least(least, load_half(a + i) + load_half(b + i)));
    for (; i < n; i++)
        y[i] = half_bf16_from(at_least_one(least, half_bf16_to(a[i]) + half_bf16_to(b[i])));
}

static void narrow(const float *x, size_t n, uint16_t *y)
{
    size_t i = 0;

    for (; i + B <= n; i += B)
        store_half(y + i, load(x + i));
    for (; i < n; i++)
        y[i] = half_bf16_from(x[i]);
}

static void widen(const uint16_t *x, size_t n, float *y)
{
    size_t i = 0;

    for (; i + B <= n; i += B)
        store(y + i, load_half(x + i));
    for (; i < n; i++)
        y[i] = half_bf16_to(x[i]);
}

/* The index in channel blocks of channel `c` of a pixel. */
static size_t blocked_at(const struct cpu_area *area, size_t image, size_t pixel, size_t c)
{
    const size_t pixels = (size_t)area->height * area->width;

    return ((image * area->blocks + c / B) * pixels + pixel) * B + c % B;
}

static void pack(const struct cpu_area *area, uint32_t channels, const float *x, uint16_t *y)
{
    const size_t pixels = (size_t)area->height * area->width;

    for (size_t row = 0; row < area->images * pixels; row++, y += channels)
        for (size_t c = 0; c < channels; c += B)
            narrow(x + blocked_at(area, row / pixels, row % pixels, c),
                   channels - c < B ? channels - c : B, y + c);
}

static void unpack(const struct cpu_area *area, uint32_t channels, const uint16_t *y, float *x)
{
    const size_t pixels = (size_t)area->height * area->width;

    for (size_t row = 0; row < area->images * pixels; row++, y += channels)
        for (size_t c = 0; c < (size_t)area->blocks * B; c += B) {
            float *to = x + blocked_at(area, row / pixels, row % pixels, c);
            const size_t count = c >= channels ? 0 : channels - c < B ? channels - c : B;

            widen(y + c, count, to);
            memset(to + count, 0, (B - count) * sizeof *to);
        }
}

const struct cpu_bf16_kernels CPU_KERNELS_BF16 = {
    .norm_sums = norm_sums,
    .norm_apply = norm_apply,
    .norm_backward_sums = norm_backward_sums,
    .norm_add_backward_sums = norm_add_backward_sums,
    .norm_backward_apply = norm_backward_apply,
    .relu = relu,
    .relu_backward = relu_backward,
    .add = add,
    .narrow = narrow,
    .widen = widen,
    .pack = pack,
    .unpack = unpack,
};
