/* Softmax cross-entropy, one block per row. The row (4 KB for 1000 classes) is read from memory
 * once and from the cache three more times. At 256 rows the kernel is bound by its launch, so
 * double precision (2 * 256,000 exponentials per step) costs no time. */
#include "kernels/exponent.h"
#include "kernels/layers.h"
#include "kernels/launch.cuh"

namespace
{
struct shared_sums {
    double doubles[WARPS];
    float floats[WARPS];
    uint32_t counts[WARPS];
};

/* Reductions over one row, the same in all threads of its block. */
struct row {
    int64_t label; /* -1: out of range */
    double max, sum;
};
} // namespace

static __device__ float block_max(float value, float *shared)
{
    float max;

    for (uint32_t step = WARP / 2; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, (int)step));
    if (threadIdx.x % WARP == 0)
        shared[threadIdx.x / WARP] = value;
    __syncthreads();
    max = shared[0];
    for (uint32_t warp = 1; warp < WARPS; warp++)
        max = fmaxf(max, shared[warp]);
    return max;
}

/* Whether class c ranks before the label, whose score is `own`. A NaN ranks before it. */
static __device__ bool is_before(float score, float own, uint32_t c, uint32_t label)
{
    return c != label && (c < label ? !(score < own) : !(score <= own));
}

template <typename T>
static __device__ struct row reduce_row(const struct kernel_loss &loss, const T *scores,
                                        int64_t label, struct shared_sums *shared,
                                        struct kernel_loss_row *out)
{
    const bool is_valid = label >= 0 && label < loss.classes;
    const float own = is_valid ? as_float(scores[label]) : NAN;
    struct row row = {is_valid ? label : -1, 0.0, 0.0};
    float max = -INFINITY;
    double sum = 0.0, all = 0.0;
    uint32_t before = 0;

    for (uint32_t c = threadIdx.x; c < loss.classes; c += LAUNCH_THREADS) {
        const float score = as_float(scores[c]);

        max = fmaxf(max, score);
        before += is_before(score, own, c, (uint32_t)label);
    }
    row.max = block_max(max, shared->floats);
    for (uint32_t c = threadIdx.x; c < loss.classes; c += LAUNCH_THREADS) {
        const double off = as_float(scores[c]) - row.max;

        sum += exponent_exp(off);
        all += off;
    }
    row.sum = block_sum(sum, shared->doubles);
    all = block_sum(all, shared->doubles);
    before = block_sum(before, shared->counts);
    if (threadIdx.x == 0) {
        const double smoothing = loss.smoothing, off = own - row.max;
        const bool is_ranked = own == own;

        out->loss = exponent_log(row.sum) - off;
        if (smoothing > 0.0) /* without smoothing a score of -infinity would give 0 * infinity */
            out->loss =
                exponent_log(row.sum) - (1.0 - smoothing) * off - smoothing / loss.classes * all;
        out->top1 = is_ranked && before < 1;
        out->top5 = is_ranked && before < 5;
    }
    return row;
}

template <typename T, typename G>
static __device__ void write_grads(const struct kernel_loss &loss, const struct row &row,
                                   float scale, const T *scores, G *grads)
{
    const float other = loss.smoothing / (float)loss.classes;
    const float own = 1.0F - loss.smoothing + other;

    for (uint32_t c = threadIdx.x; c < loss.stride; c += LAUNCH_THREADS) {
        float grad = 0.0F;

        if (c < loss.classes) {
            const float p = (float)(exponent_exp(as_float(scores[c]) - row.max) / row.sum);

            grad = row.label < 0 ? NAN : scale * (p - (c == row.label ? own : other));
        }
        round_to(grad, &grads[c]);
    }
}

template <typename T, typename G>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
    loss_rows(const struct kernel_loss loss, const T *logits, const void *labels,
              const float *scale, G *grads, struct kernel_loss_row *rows_out)
{
    __shared__ struct shared_sums shared;
    const size_t at = (size_t)blockIdx.x * loss.stride;
    const int64_t label = loss.labels_are_i64 ? ((const int64_t *)labels)[blockIdx.x]
                                              : ((const int32_t *)labels)[blockIdx.x];
    const struct row row = reduce_row(loss, logits + at, label, &shared, &rows_out[blockIdx.x]);

    if (grads != NULL)
        write_grads(loss, row, loss.grad_scale * (scale != NULL ? *scale : 1.0F) / (float)loss.rows,
                    logits + at, grads + at);
}

static __global__ void __launch_bounds__(LAUNCH_THREADS)
    loss_total(uint32_t rows, const struct kernel_loss_row *in, struct kernel_loss_result *result)
{
    __shared__ struct shared_sums shared;
    double loss = 0.0;
    uint32_t top1 = 0, top5 = 0;

    for (uint32_t i = threadIdx.x; i < rows; i += LAUNCH_THREADS) {
        loss += in[i].loss;
        top1 += in[i].top1;
        top5 += in[i].top5;
    }
    loss = block_sum(loss, shared.doubles);
    top1 = block_sum(top1, shared.counts);
    top5 = block_sum(top5, shared.counts);
    if (threadIdx.x == 0)
        *result = {loss, top1, top5};
}

int kernel_loss(const struct kernel_loss *loss, const void *logits, const void *labels,
                const float *scale, void *grads, struct kernel_loss_row *rows_out,
                struct kernel_loss_result *result, struct CUstream_st *stream)
{
    int error = 0;

    if (loss->classes == 0 || loss->stride < loss->classes)
        return (int)cudaErrorInvalidValue;
    if (loss->rows > 0)
        error = launch_typed(loss->type, [=](auto t) {
            return launch_typed(loss->grad_type, [=](auto g) {
                return launch(loss_rows<decltype(t), decltype(g)>, dim3(loss->rows), stream, *loss,
                              (const decltype(t) *)logits, labels, scale, (decltype(g) *)grads,
                              rows_out);
            });
        });
    if (error != 0)
        return error;
    return launch(loss_total, dim3(1), stream, loss->rows, (const struct kernel_loss_row *)rows_out,
                  result);
}
