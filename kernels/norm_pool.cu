/* Batch norm and max pool as one. Bound by memory. Forward, a thread computes one pack of channels
 * of one pooled pixel: up to nine loads, most of them from the cache, and one norm. The sums of
 * backward read what forward kept. Apply gathers over the windows that cover an input; where windows
 * are 3 x 3 with a stride of 2, as in ResNet's stem, a thread does the 2 x 2 inputs that share their
 * four windows. */
#include "kernels/norm_pool.h"

#include "kernels/batch_norm.cuh"
#include "kernels/batch_norm_terms.cuh"
#include "kernels/columns.cuh"
#include "kernels/launch.cuh"

namespace
{
/* `places` of N channels: one byte each, the first channel in the lowest byte. */
template <int N> using bytes = std::conditional_t<N == 8, uint64_t, uint32_t>;

/* The pool's shape, for forward and backward. */
struct shape {
    uint32_t height, width, out_height, out_width, packs; /* packs of channels */
    uint32_t kernel, stride, pad;
};

/* The gradient that passes back through the pool and the ReLU, for one pack of the norm's input. */
template <typename T, int N> struct pooled {
    static constexpr uint32_t AT_ONCE = 1;
    struct raw {
        float d[N];
    };
    const T *dy;
    const uint8_t *places;
    struct shape shape;

    /* The windows that cover a coordinate: [*first, *last). */
    __device__ void windows_of(uint32_t at, uint32_t out, uint32_t *first, uint32_t *last) const
    {
        const uint32_t padded = at + shape.pad;

        *first = padded < shape.kernel ? 0 : (padded - shape.kernel) / shape.stride + 1;
        *last = min(padded / shape.stride + 1, out);
    }
    /* i: the pack in the norm's input. The sum is rounded as if it had been stored in memory. */
    __device__ raw load(uint32_t i, bool is_there) const
    {
        const uint32_t pixel = i / shape.packs;
        const uint32_t x = pixel % shape.width, line = pixel / shape.width;
        const uint32_t y = line % shape.height, image = line / shape.height;
        uint32_t y_first, y_last, x_first, x_last;
        float sum[N] = {};
        struct raw raw;

        windows_of(y, shape.out_height, &y_first, &y_last);
        windows_of(x, shape.out_width, &x_first, &x_last);
        for (uint32_t oy = y_first; oy < y_last; oy++)
            for (uint32_t ox = x_first; ox < x_last; ox++) {
                const size_t out =
                    ((((size_t)image * shape.out_height + oy) * shape.out_width + ox) *
                         shape.packs +
                     i % shape.packs) *
                    N;
                const uint32_t mine = (y + shape.pad - oy * shape.stride) * shape.kernel + x +
                                      shape.pad - ox * shape.stride;
                const bytes<N> where = *reinterpret_cast<const bytes<N> *>(places + out);
                float in[N];

                pack_read<N>(dy, out, in);
#pragma unroll
                for (int k = 0; k < N; k++)
                    sum[k] += (where >> 8 * k & 0xff) == mine ? in[k] : 0.0F;
            }
#pragma unroll
        for (int k = 0; k < N; k++) {
            T rounded;

            round_to(sum[k], &rounded);
            raw.d[k] = is_there ? as_float(rounded) : 0.0F;
        }
        return raw;
    }
    static __device__ void read(const raw &raw, float d[N])
    {
#pragma unroll
        for (int k = 0; k < N; k++)
            d[k] = raw.d[k];
    }
};
/* The gradient of the maxima, 0 where the ReLU stopped one. */
template <typename T, int N> struct stopped {
    static constexpr uint32_t AT_ONCE = 4;
    struct raw {
        pack<T, N> dy;
        bytes<N> where;
    };
    const T *dy;
    const uint8_t *places;

    __device__ raw load(uint32_t pack, bool is_there) const
    {
        const bytes<N> where = reinterpret_cast<const bytes<N> *>(places)[pack];

        return {pack_load<N>(dy, pack), is_there ? where : ~(bytes<N>)0};
    }
    static __device__ void read(const raw &raw, float d[N])
    {
        pack_floats(raw.dy, d);
#pragma unroll
        for (int k = 0; k < N; k++)
            d[k] = (raw.where >> 8 * k & 0xff) == KERNEL_NORM_POOL_STOPPED ? 0.0F : d[k];
    }
};
} // namespace

/* What a window's threads know about their channels. */
template <int N> struct normal {
    float mean[N], scale[N], beta[N];
};

template <int N>
static __device__ inline void normal_read(const float *stats, uint32_t channels, uint32_t channel,
                                          struct normal<N> *normal)
{
    pack_read<N>(stats, KERNEL_NORM_MEAN * (size_t)channels + channel, normal->mean);
    pack_read<N>(stats, KERNEL_NORM_SCALE * (size_t)channels + channel, normal->scale);
    pack_read<N>(stats, KERNEL_NORM_BETA * (size_t)channels + channel, normal->beta);
}

/* The largest signed_x = x * sign of a window so far, and where it is. sign: -1 where the channel's
 * scale is negative. */
template <int N> struct best {
    float signed_x[N], sign[N];
    uint32_t place[N];
};

template <int N>
static __device__ inline void best_begin(const struct normal<N> &normal, struct best<N> *best)
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        best->signed_x[k] = -INFINITY;
        best->sign[k] = normal.scale[k] < 0.0F ? -1.0F : 1.0F;
        best->place[k] = 0;
    }
}

template <int N>
static __device__ inline void best_look(const float in[N], uint32_t place, bool is_there,
                                        struct best<N> *best)
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float x = is_there ? in[k] * best->sign[k] : -INFINITY;
        const bool is_beyond = x > best->signed_x[k] || x != x;

        best->place[k] = is_beyond ? place : best->place[k];
        best->signed_x[k] = is_beyond ? x : best->signed_x[k];
    }
}

/* Stores the maximum of a window, which input it was, and that input. */
template <typename T, int N>
static __device__ inline void best_store(const struct normal<N> &normal, const struct best<N> &best,
                                         bool relu, size_t out, T *y, uint8_t *places, T *kept)
{
    float x[N], max[N];
    bytes<N> where = 0;

#pragma unroll
    for (int k = 0; k < N; k++) {
        T rounded;

        x[k] = best.signed_x[k] * best.sign[k];
        max[k] = (x[k] - normal.mean[k]) * normal.scale[k] + normal.beta[k];
        if (relu && max[k] <= 0.0F)
            max[k] = 0.0F;
        round_to(max[k], &rounded);
        where |=
            (bytes<N>)(relu && as_float(rounded) <= 0.0F ? KERNEL_NORM_POOL_STOPPED : best.place[k])
            << 8 * k;
    }
    pack_write<N>(y, out, max);
    if (places != NULL) {
        *reinterpret_cast<bytes<N> *>(places + out) = where;
        pack_write<N>(kept, out, x);
    }
}

/* KERNEL: shape.kernel, where it is known: then all loads of a window are asked for at once. 0: one
 * after the other. */
template <typename T, int N, uint32_t KERNEL>
static __global__ void __launch_bounds__(LAUNCH_THREADS, 3)
    forward(const struct shape shape, bool relu, const T *x, const float *stats, T *y,
            uint8_t *places, T *kept)
{
    const uint32_t count = shape.out_height * shape.out_width * shape.packs;
    const T *image = x + (size_t)blockIdx.y * shape.height * shape.width * shape.packs * N;

    for (uint32_t i = blockIdx.x * LAUNCH_THREADS + threadIdx.x; i < count;
         i += gridDim.x * LAUNCH_THREADS) {
        const uint32_t pixel = i / shape.packs, first = i % shape.packs; /* of the channels */
        /* above the image: wraps to a huge row, which is not there */
        const uint32_t top = pixel / shape.out_width * shape.stride - shape.pad;
        const uint32_t left = pixel % shape.out_width * shape.stride - shape.pad;
        struct normal<N> normal;
        struct best<N> best = {
            {}, {}, false
        };
        const auto is_there = [&](uint32_t ky, uint32_t kx) {
            return top + ky < shape.height && left + kx < shape.width;
        };
        const auto load = [&](uint32_t ky, uint32_t kx) {
            const uint32_t row = top + ky, column = left + kx;

            return pack_load<N>(image, is_there(ky, kx)
                                           ? (row * shape.width + column) * shape.packs + first
                                           : first);
        };

        if constexpr (KERNEL > 0) {
            struct pack<T, N> in[KERNEL * KERNEL];

#pragma unroll
            for (uint32_t k = 0; k < KERNEL * KERNEL; k++)
                in[k] = load(k / KERNEL, k % KERNEL);
            normal_read<N>(stats, shape.packs * N, first * N, &normal);
            best_begin<N>(normal, &best);
#pragma unroll
            for (uint32_t k = 0; k < KERNEL * KERNEL; k++) {
                float value[N];

                pack_floats(in[k], value);
                best_look<N>(value, k, is_there(k / KERNEL, k % KERNEL), &best);
            }
        } else {
            normal_read<N>(stats, shape.packs * N, first * N, &normal);
            best_begin<N>(normal, &best);
            for (uint32_t k = 0; k < shape.kernel * shape.kernel; k++) {
                const uint32_t ky = k / shape.kernel, kx = k % shape.kernel;
                float value[N];

                pack_floats(load(ky, kx), value);
                best_look<N>(value, k, is_there(ky, kx), &best);
            }
        }
        best_store<T, N>(normal, best, relu, ((size_t)blockIdx.y * count + i) * N, y, places, kept);
    }
}

/* Backward for windows of 3 x 3 with a stride of 2 and a padding of 1. Cell (y, x) has the inputs
 * 2y, 2y + 1 of the rows and 2x, 2x + 1 of the columns. They are covered by the windows y, y + 1 and
 * x, x + 1 alone; CELL_PLACES has where each is in them, or none. */
constexpr uint32_t CELL_NONE = 254;
static __device__ constexpr uint32_t CELL_PLACES[4][4] = {{4, CELL_NONE, CELL_NONE, CELL_NONE},
                                                          {5, 3, CELL_NONE, CELL_NONE},
                                                          {7, CELL_NONE, 1, CELL_NONE},
                                                          {8, 6, 2, 0}};

template <typename T, int N>
static __global__ void __launch_bounds__(LAUNCH_THREADS, 2)
    apply_cells(const struct shape shape, uint32_t cells, uint32_t width, const T *x, const T *dy,
                const uint8_t *places, const float *stats, const float *coefs, T *dx)
{
    const struct batch_norm_place place = batch_norm_place(width);
    const uint32_t channel = place.pack * N, channels = shape.packs * N;
    float mean[N], a[N], b[N], c[N];

    if (place.pack >= shape.packs)
        return;
    pack_read<N>(stats, KERNEL_NORM_MEAN * (size_t)channels + channel, mean);
    pack_read<N>(coefs, channel, a);
    pack_read<N>(coefs, (size_t)channels + channel, b);
    pack_read<N>(coefs, 2 * (size_t)channels + channel, c);
    for (uint32_t cell = place.row; cell < cells; cell += place.stride) {
        const uint32_t cx = cell % shape.out_width, line = cell / shape.out_width;
        const uint32_t cy = line % shape.out_height, image = line / shape.out_height;
        const uint32_t pixel = (image * shape.height + 2 * cy) * shape.width + 2 * cx;
        const bool is_below = 2 * cy + 1 < shape.height, is_right = 2 * cx + 1 < shape.width;
        uint32_t at[4];
        struct pack<T, N> in[4], out[4];
        bytes<N> where[4];
        bool is_mine[4];

#pragma unroll
        for (uint32_t q = 0; q < 4; q++) { /* below: 2, right: 1 */
            const bool is_pixel = (q < 2 || is_below) && (q % 2 == 0 || is_right);
            const bool is_window =
                (q < 2 || cy + 1 < shape.out_height) && (q % 2 == 0 || cx + 1 < shape.out_width);
            const uint32_t window =
                (is_window ? cell + q / 2 * shape.out_width + q % 2 : cell) * shape.packs +
                place.pack;

            at[q] =
                (is_pixel ? pixel + q / 2 * shape.width + q % 2 : pixel) * shape.packs + place.pack;
            in[q] = pack_load<N>(x, at[q]);
            out[q] = pack_load<N>(dy, window);
            where[q] = reinterpret_cast<const bytes<N> *>(places)[window];
            is_mine[q] = is_window;
        }
#pragma unroll
        for (uint32_t q = 0; q < 4; q++) {
            float value[N], sum[N] = {};

            if ((q >= 2 && !is_below) || (q % 2 == 1 && !is_right))
                continue;
#pragma unroll
            for (uint32_t w = 0; w < 4; w++)
#pragma unroll
                for (int k = 0; k < N && CELL_PLACES[q][w] != CELL_NONE; k++)
                    sum[k] += is_mine[w] && (where[w] >> 8 * k & 0xff) == CELL_PLACES[q][w]
                                  ? as_float(out[w].v[k])
                                  : 0.0F;
            pack_floats(in[q], value);
#pragma unroll
            for (int k = 0; k < N; k++) {
                T d; /* rounded as if it had been stored in memory */

                round_to(sum[k], &d);
                value[k] = a[k] * as_float(d) + b[k] * (value[k] - mean[k]) + c[k];
            }
            pack_write<N>(dx, (size_t)at[q] * N, value);
        }
    }
}

/* Every window must touch the image, and packs are counted in 32 bits. */
static bool is_wrong(const struct kernel_norm *norm, const struct kernel_pool *pool)
{
    return batch_norm_is_wrong(norm) || norm->channels != pool->channels ||
           norm->type != pool->type ||
           norm->rows != (size_t)pool->images * pool->height * pool->width || pool->kernel == 0 ||
           pool->kernel > 15 || pool->stride == 0 || 2 * pool->pad > pool->kernel ||
           pool->out_height == 0 || pool->out_width == 0 || pool->images > LAUNCH_GRID_Y_MAX ||
           (size_t)pool->out_height * pool->stride >=
               (size_t)pool->height + pool->pad + pool->stride ||
           (size_t)pool->out_width * pool->stride >=
               (size_t)pool->width + pool->pad + pool->stride ||
           norm->rows > UINT32_MAX / (norm->channels / 4);
}

static struct shape shape_of(const struct kernel_pool *pool, uint32_t pack)
{
    return {pool->height,          pool->width,  pool->out_height, pool->out_width,
            pool->channels / pack, pool->kernel, pool->stride,     pool->pad};
}

int kernel_norm_pool(const struct kernel_norm *norm, const struct kernel_pool *pool, const void *x,
                     const float *stats, void *y, uint8_t *places, void *kept,
                     struct CUstream_st *stream)
{
    if (is_wrong(norm, pool) || (places == NULL) != (kept == NULL))
        return (int)cudaErrorInvalidValue;
    return batch_norm_packed(norm, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        const size_t count = (size_t)pool->out_height * pool->out_width * pool->channels / N;

        return launch(pool->kernel == 3 ? forward<T, N, 3> : forward<T, N, 0>,
                      dim3(launch_blocks(count), pool->images), stream, shape_of(pool, N),
                      norm->relu, (const T *)x, stats, (T *)y, places, (T *)kept);
    });
}

/* `give` as columns_launch() calls it. */
template <typename G>
static int maxima_sums(const struct kernel_norm *norm, const struct kernel_pool *pool,
                       const void *kept, const void *dy, const uint8_t *places, const float *stats,
                       const G &give, void *scratch, uint32_t *counters, cudaStream_t stream)
{
    if (is_wrong(norm, pool))
        return (int)cudaErrorInvalidValue;
    return batch_norm_packed(norm, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        const batch_norm_products<T, N, stopped<T, N>> terms = {
            (const T *)kept, stats, {(const T *)dy, places}};

        return columns_launch<2, N>(terms, give,
                                    (size_t)pool->images * pool->out_height * pool->out_width,
                                    norm->channels, scratch, counters, stream);
    });
}

int kernel_norm_pool_backward_sums(const struct kernel_norm *norm, const struct kernel_pool *pool,
                                   const void *kept, const void *dy, const uint8_t *places,
                                   const float *stats, double *sums, void *scratch,
                                   uint32_t *counters, struct CUstream_st *stream)
{
    return maxima_sums(norm, pool, kept, dy, places, stats,
                       batch_norm_sums{norm->rows, norm->channels, sums}, scratch, counters,
                       stream);
}

int kernel_norm_pool_gradients(const struct kernel_norm *norm, const struct kernel_pool *pool,
                               const void *kept, const void *dy, const uint8_t *places,
                               const float *stats, void *dgamma, void *dbeta, float *coefs,
                               double *sums, void *scratch, uint32_t *counters,
                               struct CUstream_st *stream)
{
    const batch_norm_gradients give = {
        *norm, {norm->rows, norm->channels, sums}, {stats, dgamma, dbeta, coefs}};

    return maxima_sums(norm, pool, kept, dy, places, stats, give, scratch, counters, stream);
}

/* Whether apply_cells() does it: all inputs are in a cell. */
static bool has_cells(const struct kernel_pool *pool)
{
    return pool->kernel == 3 && pool->stride == 2 && pool->pad == 1 &&
           pool->out_height == (pool->height + 1) / 2 && pool->out_width == (pool->width + 1) / 2;
}

int kernel_norm_pool_backward_apply(const struct kernel_norm *norm, const struct kernel_pool *pool,
                                    const void *x, const void *dy, const uint8_t *places,
                                    const float *stats, const float *coefs, void *dx,
                                    struct CUstream_st *stream)
{
    if (is_wrong(norm, pool))
        return (int)cudaErrorInvalidValue;
    return batch_norm_packed(norm, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        const struct shape shape = shape_of(pool, N);
        const uint32_t cells = pool->images * pool->out_height * pool->out_width;

        if (has_cells(pool))
            return launch(apply_cells<T, N>, batch_norm_grid(cells, shape.packs, 1), stream, shape,
                          cells, batch_norm_width(shape.packs), (const T *)x, (const T *)dy, places,
                          stats, coefs, (T *)dx);
        return batch_norm_launch_apply<T, N>(norm, x, pooled<T, N>{(const T *)dy, places, shape},
                                             stats, coefs, dx, NULL, stream);
    });
}
