/* LARS and LARC in three launches for up to 64 tensors: the squares of each chunk, the ratio of
 * each tensor, the step with unscaling and the half copy. Parameters and gradients are read twice,
 * the second time from L2 where they fit. Refused: atomic sums, whose order changes from run to
 * run. */
#include "kernels/multi.cuh"

#include "kernels/optimizer.h"
#include "kernels/grad_norm.h"

static_assert(GRAD_NORM_CHUNK == MULTI_CHUNK && GRAD_NORM_LANES == MULTI_THREADS,
              "a block is a chunk");

static_assert(MULTI_TENSORS_MAX == KERNEL_LARS_LAUNCH_TENSORS, "kernel_lars_workspace counts them");

using lars_table = struct multi_table<struct kernel_lars_tensor>;

/* Scratch between the launches. */
struct workspace {
    double *sums;  /* [chunks][2]: squares of the parameter, squares of the gradient */
    float *ratios; /* [tensors] of a table */
};

static __device__ struct kernel_lars with_rates(const struct kernel_lars &given,
                                                const struct kernel_rates *rates)
{
    struct kernel_lars lars = given;

    if (rates != NULL) {
        lars.lr = rates->lr;
        lars.momentum = rates->momentum;
    }
    return lars;
}

/* The sum of `value` over the block's threads, in thread 0. */
static __device__ double fold(double value)
{
    __shared__ double lanes[GRAD_NORM_LANES];

    __syncthreads(); /* every thread has read the result of an earlier fold */
    lanes[threadIdx.x] = value;
    __syncthreads();
    for (uint32_t half = GRAD_NORM_LANES / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            lanes[threadIdx.x] = __dadd_rn(lanes[threadIdx.x], lanes[threadIdx.x + half]);
        __syncthreads();
    }
    return lanes[0];
}

static __device__ double add_square(double sum, float value)
{
    return __dadd_rn(sum, __dmul_rn((double)value, (double)value));
}

template <typename G>
static __global__ void __launch_bounds__(MULTI_THREADS)
    lars_squares(const __grid_constant__ lars_table table, struct workspace workspace,
                 const float *scale, const uint32_t *found)
{
    if (found != NULL && *found != 0)
        return;

    const struct multi_chunk chunk = multi_chunk_of(table);
    const struct kernel_lars_tensor &tensor = table.tensors[chunk.t];
    if (!tensor.adapts)
        return;

    const float scale_inverse = __frcp_rn(*scale);
    double param = 0.0, grad = 0.0;

    for (size_t i = chunk.begin + threadIdx.x; i < chunk.end; i += MULTI_THREADS) {
        param = add_square(param, tensor.master[i]);
        grad = add_square(grad, __fmul_rn(as_float(((const G *)tensor.grad)[i]), scale_inverse));
    }
    param = fold(param);
    grad = fold(grad);
    if (threadIdx.x == 0) {
        workspace.sums[2 * (size_t)blockIdx.x] = param;
        workspace.sums[2 * (size_t)blockIdx.x + 1] = grad;
    }
}

static __device__ float ratio_of(const struct kernel_lars &lars, double param_norm,
                                 double grad_norm)
{
    const double below = __dadd_rn(grad_norm, __dmul_rn((double)lars.weight_decay, param_norm));
    const double above = __dmul_rn((double)lars.trust, param_norm);

    if (!lars.is_larc)
        return param_norm != 0.0 && below != 0.0 ? __double2float_rn(__ddiv_rn(above, below))
                                                 : 1.0F;
    if (param_norm == 0.0)
        return 1.0F;
    if (grad_norm == 0.0)
        return 0.0F;
    const double ratio =
        __ddiv_rn(__ddiv_rn(above, __dadd_rn(below, (double)lars.eps)), (double)lars.lr);
    return ratio < 1.0 ? __double2float_rn(ratio) : 1.0F;
}

/* One block per tensor. */
static __global__ void __launch_bounds__(MULTI_THREADS)
    lars_ratios(const __grid_constant__ lars_table table,
                const __grid_constant__ struct kernel_lars given, const struct kernel_rates *rates,
                struct workspace workspace, const uint32_t *found)
{
    if (found != NULL && *found != 0)
        return;

    const uint32_t t = blockIdx.x, first = table.chunk_first[t];
    const uint32_t end = table.chunk_first[t + 1];
    double param = 0.0, grad = 0.0;

    if (!table.tensors[t].adapts) {
        if (threadIdx.x == 0)
            workspace.ratios[t] = 1.0F;
        return;
    }
    for (uint32_t chunk = first + threadIdx.x; chunk < end; chunk += GRAD_NORM_LANES) {
        param = __dadd_rn(param, workspace.sums[2 * (size_t)chunk]);
        grad = __dadd_rn(grad, workspace.sums[2 * (size_t)chunk + 1]);
    }
    param = fold(param);
    grad = fold(grad);
    if (threadIdx.x == 0)
        workspace.ratios[t] =
            ratio_of(with_rates(given, rates), __dsqrt_rn(param), __dsqrt_rn(grad));
}

/* One element; `grad` is already divided by the loss scale. Returns the new parameter. */
static __device__ float step(const struct kernel_lars &lars, float ratio, float param, float grad,
                             float *momentum)
{
    float change = __fadd_rn(grad, __fmul_rn(lars.weight_decay, param));

    change = __fmul_rn(change, ratio);
    if (!lars.is_larc)
        change = __fmul_rn(change, lars.lr);
    if (lars.momentum != 0.0F) {
        const float buf = __fadd_rn(__fmul_rn(lars.momentum, *momentum), change);

        *momentum = buf;
        change = lars.nesterov ? __fadd_rn(change, __fmul_rn(lars.momentum, buf)) : buf;
    }
    if (lars.is_larc)
        change = __fmul_rn(lars.lr, change);
    return __fsub_rn(param, change);
}

template <typename G, typename H>
static __global__ void __launch_bounds__(MULTI_THREADS)
    lars_step(const __grid_constant__ lars_table table,
              const __grid_constant__ struct kernel_lars given, const struct kernel_rates *rates,
              struct workspace workspace, const float *scale, const uint32_t *found)
{
    if (found != NULL && *found != 0)
        return;

    const struct multi_chunk chunk = multi_chunk_of(table);
    const float scale_inverse = __frcp_rn(*scale), ratio = workspace.ratios[chunk.t];
    const struct kernel_lars lars = with_rates(given, rates);
    const bool has_momentum = lars.momentum != 0.0F;

    multi_packs(chunk, [&](size_t i, uint32_t n) {
        multi_momentum_step<G, H>(table.tensors[chunk.t], has_momentum, has_momentum, i, n,
                                  [&](float param, float grad, float *momentum) {
                                      return step(lars, ratio, param,
                                                  __fmul_rn(grad, scale_inverse), momentum);
                                  });
    });
}

template <typename G>
static int launch_steps(const lars_table &table, const struct kernel_lars &lars,
                        const struct kernel_rates *rates, struct workspace workspace,
                        const float *scale, const uint32_t *found, cudaStream_t stream)
{
    int error = launch(lars_squares<G>, multi_grid(table), stream, table, workspace, scale, found);

    if (error == 0)
        error = launch(lars_ratios, dim3(table.tensor_count), stream, table, lars, rates, workspace,
                       found);
    if (error != 0)
        return error;
    return launch(lars.half_type == KERNEL_BF16 ? lars_step<G, __nv_bfloat16>
                                                : lars_step<G, __half>,
                  multi_grid(table), stream, table, lars, rates, workspace, scale, found);
}

int kernel_lars(const struct kernel_lars_tensor *tensors, uint32_t tensor_count,
                const struct kernel_lars *lars, const struct kernel_rates *rates, void *memory,
                const float *scale, const uint32_t *found, struct CUstream_st *stream)
{
    const struct workspace workspace = {(double *)memory + MULTI_TENSORS_MAX, (float *)memory};

    return multi_launch(tensors, tensor_count, [=](const auto &table) {
        return launch_typed(lars->grad_type, [&](auto g) {
            return launch_steps<decltype(g)>(table, *lars, rates, workspace, scale, found, stream);
        });
    });
}
