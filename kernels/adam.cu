/* Adam and AdamW with unscaling and the half copy in one pass over memory: 16 bytes read and 12 + 2
 * written an element (f32 gradient), which is what binds it. The count of steps is read on the
 * device; one thread a block makes the scalars of it, a few dozen products beside 4096 elements. */
#include "kernels/multi.cuh"

#include "kernels/kernels_optim.h"

/* What a step does to every element, rounded once. */
struct rates {
    float scale_inverse, decay, shrink, take1, keep2, take2, step, root2;
};

static __device__ double power(double base, uint32_t n)
{
    double product = 1.0;

    for (; n > 0; n >>= 1) {
        if (n & 1)
            product = __dmul_rn(product, base);
        base = __dmul_rn(base, base);
    }
    return product;
}

static __device__ void make_rates(const struct kernel_adam &adam, const struct kernel_rates *given,
                                  float scale, uint32_t t, struct rates *rates)
{
    const double lr = given != NULL ? given->wide_lr : adam.lr;
    const double beta1 = given != NULL ? given->beta1 : adam.beta1;
    const double shrink = __dsub_rn(1.0, __dmul_rn(lr, adam.weight_decay));

    rates->scale_inverse = __frcp_rn(scale);
    rates->decay = adam.is_adamw ? 0.0F : __double2float_rn(adam.weight_decay);
    rates->shrink = adam.is_adamw ? __double2float_rn(shrink) : 1.0F;
    rates->take1 = __double2float_rn(__dsub_rn(1.0, beta1));
    rates->keep2 = __double2float_rn(adam.beta2);
    rates->take2 = __double2float_rn(__dsub_rn(1.0, adam.beta2));
    rates->step = __double2float_rn(__ddiv_rn(lr, __dsub_rn(1.0, power(beta1, t))));
    rates->root2 = __double2float_rn(__dsqrt_rn(__dsub_rn(1.0, power(adam.beta2, t))));
}

/* One element; `grad` is still scaled. Returns the new parameter. */
static __device__ float step(const struct rates &r, float eps, float param, float grad, float *m,
                             float *v)
{
    grad = __fadd_rn(__fmul_rn(grad, r.scale_inverse), __fmul_rn(r.decay, param));
    param = __fmul_rn(param, r.shrink);
    *m = __fadd_rn(*m, __fmul_rn(r.take1, __fsub_rn(grad, *m)));
    *v = __fadd_rn(__fmul_rn(r.keep2, *v), __fmul_rn(__fmul_rn(r.take2, grad), grad));
    const float below = __fadd_rn(__fdiv_rn(__fsqrt_rn(*v), r.root2), eps);
    return __fsub_rn(param, __fmul_rn(r.step, __fdiv_rn(*m, below)));
}

/* `n` (1 to 4) elements from index `i`. */
template <typename G, typename H>
static __device__ void step_pack(const struct kernel_adam_tensor &tensor, const struct rates &rates,
                                 float eps, size_t i, uint32_t n)
{
    alignas(struct multi_pack<G>) G grad[MULTI_PACK];
    alignas(struct multi_pack<float>) float master[MULTI_PACK];
    alignas(struct multi_pack<float>) float m[MULTI_PACK];
    alignas(struct multi_pack<float>) float v[MULTI_PACK];
    alignas(struct multi_pack<H>) H half[MULTI_PACK];

    multi_read((const G *)tensor.grad, i, n, grad);
    multi_read(tensor.master, i, n, master);
    multi_read(tensor.exp_avg, i, n, m);
    multi_read(tensor.exp_avg_sq, i, n, v);
    for (uint32_t k = 0; k < n; k++) {
        master[k] = step(rates, eps, master[k], multi_float(grad[k]), &m[k], &v[k]);
        multi_round(master[k], &half[k]);
    }
    multi_write(tensor.master, i, n, master);
    multi_write(tensor.exp_avg, i, n, m);
    multi_write(tensor.exp_avg_sq, i, n, v);
    if (tensor.half != NULL)
        multi_write((H *)tensor.half, i, n, half);
}

template <typename G, typename H>
static __global__ void __launch_bounds__(MULTI_THREADS)
    adam_step(const __grid_constant__ struct multi_table<struct kernel_adam_tensor> table,
              const __grid_constant__ struct kernel_adam adam, const struct kernel_rates *given,
              const float *scale, const uint32_t *found, const uint32_t *applied)
{
    __shared__ struct rates rates;

    if (found != NULL && *found != 0)
        return;
    if (threadIdx.x == 0)
        make_rates(adam, given, *scale, *applied + 1, &rates);
    __syncthreads();

    const uint32_t t = multi_find(table);
    const size_t begin = (size_t)(blockIdx.x - table.chunk_first[t]) * MULTI_CHUNK;
    const size_t end = min(begin + MULTI_CHUNK, table.tensors[t].count);

    for (size_t i = begin + threadIdx.x * MULTI_PACK; i < end; i += MULTI_THREADS * MULTI_PACK)
        step_pack<G, H>(table.tensors[t], rates, adam.eps, i,
                        (uint32_t)min((size_t)MULTI_PACK, end - i));
}

template <typename G>
static int launch(const struct multi_table<struct kernel_adam_tensor> &table,
                  const struct kernel_adam &adam, const struct kernel_rates *given,
                  const float *scale, const uint32_t *found, const uint32_t *applied,
                  cudaStream_t stream)
{
    return multi_launch(
        adam.half_type == KERNEL_BF16 ? adam_step<G, __nv_bfloat16> : adam_step<G, __half>,
        table.chunk_first[table.tensor_count], stream, table, adam, given, scale, found, applied);
}

int kernel_adam(const struct kernel_adam_tensor *tensors, uint32_t tensor_count,
                const struct kernel_adam *adam, const struct kernel_rates *rates,
                const float *scale, const uint32_t *found, const uint32_t *applied,
                struct CUstream_st *stream)
{
    int error = 0;

    while (error == 0 && tensor_count > 0) {
        struct multi_table<struct kernel_adam_tensor> table;
        const uint32_t taken = multi_take(tensors, tensor_count, &table);

        tensors += taken;
        tensor_count -= taken;
        if (table.tensor_count == 0)
            continue;
        if (adam->grad_type == KERNEL_F32)
            error = launch<float>(table, *adam, rates, scale, found, applied, stream);
        else if (adam->grad_type == KERNEL_F16)
            error = launch<__half>(table, *adam, rates, scale, found, applied, stream);
        else
            error = launch<__nv_bfloat16>(table, *adam, rates, scale, found, applied, stream);
    }
    return error;
}
