/* SGD with unscaling and the half copy in one pass over memory: 4 + 4 + 4 bytes read and 4 + 4 + 2
 * written an element (f32 gradient), which is what binds it. The sums are written with the
 * intrinsics that the compiler may not fuse, so that the plain C twin gives the same bits. */
#include "kernels/multi.cuh"

/* One element. Returns the new parameter; `grad` is unscaled. */
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

/* `n` (1 to 4) elements from index `i`. */
template <typename G, typename H>
static __device__ void step_pack(const struct kernel_sgd_tensor &tensor,
                                 const struct kernel_sgd &sgd, float scale_inverse, size_t i,
                                 uint32_t n)
{
    alignas(struct multi_pack<G>) G grad[MULTI_PACK];
    alignas(struct multi_pack<float>) float master[MULTI_PACK];
    alignas(struct multi_pack<float>) float momentum[MULTI_PACK] = {};
    alignas(struct multi_pack<H>) H half[MULTI_PACK];
    const bool has_momentum = sgd.momentum != 0.0F;

    multi_read((const G *)tensor.grad, i, n, grad);
    multi_read(tensor.master, i, n, master);
    if (has_momentum && !sgd.is_first_step)
        multi_read(tensor.momentum, i, n, momentum);
    for (uint32_t k = 0; k < n; k++) {
        master[k] =
            step(sgd, master[k], __fmul_rn(multi_float(grad[k]), scale_inverse), &momentum[k]);
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

    const uint32_t t = multi_find(table);
    const size_t begin = (size_t)(blockIdx.x - table.chunk_first[t]) * MULTI_CHUNK;
    const size_t end = min(begin + MULTI_CHUNK, table.tensors[t].count);
    const float scale_inverse = __frcp_rn(*scale);

    for (size_t i = begin + threadIdx.x * MULTI_PACK; i < end; i += MULTI_THREADS * MULTI_PACK)
        step_pack<G, H>(table.tensors[t], sgd, scale_inverse, i,
                        (uint32_t)min((size_t)MULTI_PACK, end - i));
}

int kernel_sgd(const struct kernel_sgd_tensor *tensors, uint32_t tensor_count,
               const struct kernel_sgd *sgd, const struct kernel_rates *rates, const float *scale,
               const uint32_t *found, struct CUstream_st *stream)
{
    while (tensor_count > 0) {
        struct multi_table<struct kernel_sgd_tensor> table;
        const uint32_t taken = multi_take(tensors, tensor_count, &table);
        const dim3 grid(table.chunk_first[table.tensor_count]);
        int error;

        tensors += taken;
        tensor_count -= taken;
        if (table.tensor_count == 0)
            continue;
        error = launch_typed(sgd->grad_type, [&](auto g) {
            using G = decltype(g);

            if (sgd->half_type == KERNEL_BF16)
                return launch(sgd_step<G, __nv_bfloat16>, grid, stream, table, *sgd, rates, scale,
                              found);
            return launch(sgd_step<G, __half>, grid, stream, table, *sgd, rates, scale, found);
        });
        if (error != 0)
            return error;
    }
    return 0;
}
