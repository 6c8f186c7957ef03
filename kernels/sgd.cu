/* SGD with unscaling and the half copy in one pass over memory. Bound by memory: per element (f32
 * gradient) 12 bytes are read and 10 written. The arithmetic uses intrinsics that the compiler may
 * not fuse, so that the reference gives the same bits. */
#include "kernels/multi.cuh"

#include "kernels/optimizer.h"

/* One element; `grad` is already divided by the loss scale. Returns the new parameter. */
static __device__ float step(const struct kernel_sgd &sgd, float param, float grad, float *momentum)
{
    grad = __fadd_rn(grad, __fmul_rn(sgd.weight_decay, param));
    if (sgd.momentum == 0.0F)
        return __fsub_rn(param, __fmul_rn(sgd.lr, grad));

    float buf = grad;
    if (!sgd.is_first_step)
        buf = __fadd_rn(__fmul_rn(sgd.momentum, *momentum),
                        __fmul_rn(__fsub_rn(1.0F, sgd.dampening), grad));
    *momentum = buf;
    if (sgd.nesterov)
        buf = __fadd_rn(grad, __fmul_rn(sgd.momentum, buf));
    return __fsub_rn(param, __fmul_rn(sgd.lr, buf));
}

template <typename G, typename H>
static __global__ void __launch_bounds__(MULTI_THREADS)
    sgd_step(const __grid_constant__ struct multi_table<struct kernel_sgd_tensor> table,
             const __grid_constant__ struct kernel_sgd given, const struct kernel_rates *rates,
             const float *scale, const uint32_t *found)
{
    if (found != NULL && *found != 0)
        return;

    struct kernel_sgd sgd = given;
    if (rates != NULL) {
        sgd.lr = rates->lr;
        sgd.momentum = rates->momentum;
        sgd.is_first_step = rates->is_first_step != 0;
    }

    const struct multi_chunk chunk = multi_chunk_of(table);
    const float scale_inverse = __frcp_rn(*scale);
    const bool has_momentum = sgd.momentum != 0.0F;

    multi_packs(chunk, [&](size_t i, uint32_t n) {
        multi_momentum_step<G, H>(
            table.tensors[chunk.t], has_momentum, has_momentum && !sgd.is_first_step, i, n,
            [&](float param, float grad, float *momentum) {
                return step(sgd, param, __fmul_rn(grad, scale_inverse), momentum);
            });
    });
}

int kernel_sgd(const struct kernel_sgd_tensor *tensors, uint32_t tensor_count,
               const struct kernel_sgd *sgd, const struct kernel_rates *rates, const float *scale,
               const uint32_t *found, struct CUstream_st *stream)
{
    return multi_launch(tensors, tensor_count, [=](const auto &table) {
        return launch_typed(sgd->grad_type, [&](auto g) {
            using G = decltype(g);

            return launch(sgd->half_type == KERNEL_BF16 ? sgd_step<G, __nv_bfloat16>
                                                        : sgd_step<G, __half>,
                          multi_grid(table), stream, table, *sgd, rates, scale, found);
        });
    });
}
