/* LARS and LARC: the squares of each chunk, then one block a tensor for its ratio, then the step
 * with unscaling and the half copy. Three launches for up to 64 tensors; parameters and gradients
 * are read twice, the second time from L2 where they fit. Atomic sums were refused: their order is
 * not kept. */
#include "kernels/multi.cuh"

#include "kernels/kernels_optim.h"
#include "kernels/norm.h"

static_assert(NORM_CHUNK == MULTI_CHUNK && NORM_LANES == MULTI_THREADS, "a block is a chunk");

using lars_table = struct multi_table<struct kernel_lars_tensor>;

/* Sums over one launch's chunks (the parameter's and the gradient's, one after the other), and the
 * ratios of its tensors. */
struct workspace {
    double *sums;  /* [chunks][2] */
    float *ratios; /* [tensors] */
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
    __shared__ double lanes[NORM_LANES];

    __syncthreads(); /* a fold before this one is read */
    lanes[threadIdx.x] = value;
    __syncthreads();
    for (uint32_t half = NORM_LANES / 2; half > 0; half /= 2) {
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

    const uint32_t t = multi_find(table);
    const struct kernel_lars_tensor &tensor = table.tensors[t];
    if (!tensor.adapts)
        return;

    const size_t begin = (size_t)(blockIdx.x - table.chunk_first[t]) * MULTI_CHUNK;
    const size_t end = min(begin + MULTI_CHUNK, tensor.count);
    const float scale_inverse = __frcp_rn(*scale);
    double param = 0.0, grad = 0.0;

    for (size_t i = begin + threadIdx.x; i < end; i += MULTI_THREADS) {
        param = add_square(param, tensor.master[i]);
        grad = add_square(grad, __fmul_rn(multi_float(((const G *)tensor.grad)[i]), scale_inverse));
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

/* One block a tensor. */
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
    for (uint32_t chunk = first + threadIdx.x; chunk < end; chunk += NORM_LANES) {
        param = __dadd_rn(param, workspace.sums[2 * (size_t)chunk]);
        grad = __dadd_rn(grad, workspace.sums[2 * (size_t)chunk + 1]);
    }
    param = fold(param);
    grad = fold(grad);
    if (threadIdx.x == 0)
        workspace.ratios[t] =
            ratio_of(with_rates(given, rates), __dsqrt_rn(param), __dsqrt_rn(grad));
}

/* One element; `grad` is unscaled. Returns the new parameter. */
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

/* `n` (1 to 4) elements from index `i`. */
template <typename G, typename H>
static __device__ void step_pack(const struct kernel_lars_tensor &tensor,
                                 const struct kernel_lars &lars, float ratio, float scale_inverse,
                                 size_t i, uint32_t n)
{
    alignas(struct multi_pack<G>) G grad[MULTI_PACK];
    alignas(struct multi_pack<float>) float master[MULTI_PACK];
    alignas(struct multi_pack<float>) float momentum[MULTI_PACK] = {};
    alignas(struct multi_pack<H>) H half[MULTI_PACK];
    const bool has_momentum = lars.momentum != 0.0F;

    multi_read((const G *)tensor.grad, i, n, grad);
    multi_read(tensor.master, i, n, master);
    if (has_momentum)
        multi_read(tensor.momentum, i, n, momentum);
    for (uint32_t k = 0; k < n; k++) {
        master[k] = step(lars, ratio, master[k], __fmul_rn(multi_float(grad[k]), scale_inverse),
                         &momentum[k]);
        multi_round(master[k], &half[k]);
    }
    multi_write(tensor.master, i, n, master);
    if (has_momentum)
        multi_write(tensor.momentum, i, n, momentum);
    if (tensor.half != NULL)
        multi_write((H *)tensor.half, i, n, half);
}

template <typename G, typename H>
static __global__ void __launch_bounds__(MULTI_THREADS)
    lars_step(const __grid_constant__ lars_table table,
              const __grid_constant__ struct kernel_lars given, const struct kernel_rates *rates,
              struct workspace workspace, const float *scale, const uint32_t *found)
{
    if (found != NULL && *found != 0)
        return;

    const uint32_t t = multi_find(table);
    const size_t begin = (size_t)(blockIdx.x - table.chunk_first[t]) * MULTI_CHUNK;
    const size_t end = min(begin + MULTI_CHUNK, table.tensors[t].count);
    const float scale_inverse = __frcp_rn(*scale), ratio = workspace.ratios[t];
    const struct kernel_lars lars = with_rates(given, rates);

    for (size_t i = begin + threadIdx.x * MULTI_PACK; i < end; i += MULTI_THREADS * MULTI_PACK)
        step_pack<G, H>(table.tensors[t], lars, ratio, scale_inverse, i,
                        (uint32_t)min((size_t)MULTI_PACK, end - i));
}

template <typename G>
static int launch(const lars_table &table, const struct kernel_lars &lars,
                  const struct kernel_rates *rates, struct workspace workspace, const float *scale,
                  const uint32_t *found, cudaStream_t stream)
{
    const uint32_t grid = table.chunk_first[table.tensor_count];
    int error = multi_launch(lars_squares<G>, grid, stream, table, workspace, scale, found);

    if (error == 0)
        error = multi_launch(lars_ratios, table.tensor_count, stream, table, lars, rates, workspace,
                             found);
    if (error != 0)
        return error;
    return multi_launch(lars.half_type == KERNEL_BF16 ? lars_step<G, __nv_bfloat16>
                                                      : lars_step<G, __half>,
                        grid, stream, table, lars, rates, workspace, scale, found);
}

/* Launches follow one another on the stream, so each may use the whole of it. */
size_t kernel_lars_workspace(const struct kernel_lars_tensor *tensors, uint32_t tensor_count)
{
    size_t chunks = 0;

    for (uint32_t t = 0; t < tensor_count; t++)
        chunks += (tensors[t].count + MULTI_CHUNK - 1) / MULTI_CHUNK;
    return MULTI_TENSORS_MAX * sizeof(double) + chunks * 2 * sizeof(double);
}

int kernel_lars(const struct kernel_lars_tensor *tensors, uint32_t tensor_count,
                const struct kernel_lars *lars, const struct kernel_rates *rates, void *memory,
                const float *scale, const uint32_t *found, struct CUstream_st *stream)
{
    const struct workspace workspace = {(double *)memory + MULTI_TENSORS_MAX, (float *)memory};
    int error = 0;

    while (error == 0 && tensor_count > 0) {
        lars_table table;
        const uint32_t taken = multi_take(tensors, tensor_count, &table);

        tensors += taken;
        tensor_count -= taken;
        if (table.tensor_count == 0)
            continue;
        if (lars->grad_type == KERNEL_F32)
            error = launch<float>(table, *lars, rates, workspace, scale, found, stream);
        else if (lars->grad_type == KERNEL_F16)
            error = launch<__half>(table, *lars, rates, workspace, scale, found, stream);
        else
            error = launch<__nv_bfloat16>(table, *lars, rates, workspace, scale, found, stream);
    }
    return error;
}
