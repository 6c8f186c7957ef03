/* Adam and AdamW with unscaling and the half copy in one pass over memory. Bound by memory: per
 * element (f32 gradient) 16 bytes are read and 14 written. The number of steps is read on the
 * device. One thread per block computes the scalars that depend on it, which costs little beside
 * the 4096 elements of the block. */
#include "kernels/multi.cuh"

#include "kernels/optimizer.h"

/* The scalars of a step, as in adam.c. */
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

/* One element; `grad` still has the loss scale. Returns the new parameter. */
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
        master[k] = step(rates, eps, master[k], as_float(grad[k]), &m[k], &v[k]);
        round_to(master[k], &half[k]);
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

    const struct multi_chunk chunk = multi_chunk_of(table);

    multi_packs(chunk, [&](size_t i, uint32_t n) {
        step_pack<G, H>(table.tensors[chunk.t], rates, adam.eps, i, n);
    });
}

int kernel_adam(const struct kernel_adam_tensor *tensors, uint32_t tensor_count,
                const struct kernel_adam *adam, const struct kernel_rates *rates,
                const float *scale, const uint32_t *found, const uint32_t *applied,
                struct CUstream_st *stream)
{
    return multi_launch(tensors, tensor_count, [=](const auto &table) {
        return launch_typed(adam->grad_type, [&](auto g) {
            using G = decltype(g);

            return launch(adam->half_type == KERNEL_BF16 ? adam_step<G, __nv_bfloat16>
                                                         : adam_step<G, __half>,
                          multi_grid(table), stream, table, *adam, rates, scale, found, applied);
        });
    });
}
