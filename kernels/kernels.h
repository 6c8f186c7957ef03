/* The operations that have a CUDA kernel: each one is a file pair, OP.cu and its plain C twin OP.c.
 *
 * The twin is the definition: the same arithmetic in the same order, every operation rounded once
 * (neither side fuses a multiply with an add), so kernel and twin agree to the bit on finite
 * values. The CPU backend may call it as it is. Kernels take device pointers and are queued on a
 * stream; twins take host pointers and return when done. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* what CUDA's cudaStream_t points to; NULL is the default stream */

enum kernel_type { KERNEL_F32, KERNEL_F16, KERNEL_BF16 };

/* Values of one type to look at. */
struct kernel_values {
    const void *values; /* [count], aligned to its type */
    size_t count;       /* 0 allowed */
};

/* Set *found to 1 when any of the values is an infinity or a NaN; never clears it (zero it before
 * the first call of a step), so that several calls give the OR. tensors: [tensor_count]; the table
 * itself is host memory and is read before the call returns found: one u32, on the device for the
 * kernel Deterministic. The kernel returns 0 or the CUDA error of the launch. Source: the test on
 * incoming gradients of Micikevicius et al. 2018, "Mixed Precision Training", section 3.2. */
void kernel_finite_ref(const struct kernel_values *tensors, uint32_t tensor_count,
                       enum kernel_type type, uint32_t *found);
int kernel_finite(const struct kernel_values *tensors, uint32_t tensor_count, enum kernel_type type,
                  uint32_t *found, struct CUstream_st *stream);

/* One parameter tensor, or a slice of the arenas. No overlap between any two arrays of a call. */
struct kernel_sgd_tensor {
    const void *grad; /* [count] of sgd.grad_type, multiplied by *scale */
    float *master;    /* [count] f32, updated in place */
    float *momentum;  /* [count] f32, updated in place; may be NULL where sgd.momentum is 0 */
    void *half;   /* [count] of sgd.half_type, written: the copy that the net computes with; NULL:
                     none */
    size_t count; /* elements, 0 allowed */
};

struct kernel_sgd {
    enum kernel_type grad_type;
    enum kernel_type half_type; /* KERNEL_F16 or KERNEL_BF16 where a tensor has `half` */
    float lr, momentum, dampening, weight_decay;
    bool nesterov;
    bool is_first_step; /* the momentum buffer becomes the gradient; what it held is not read */
};

/* What a schedule changes from step to step. On the device a recorded step reads it anew each time.
 */
struct kernel_rates {
    float lr, momentum;
    double wide_lr, beta1;  /* Adam's */
    uint64_t is_first_step; /* 0 or 1 */
};

/* Write *values (host memory, read before the call returns) to *rates, on the device for the
 * kernel. The kernel returns 0 or the CUDA error of the launch. */
void kernel_rates_ref(struct kernel_rates *rates, const struct kernel_rates *values);
int kernel_rates(struct kernel_rates *rates, const struct kernel_rates *values,
                 struct CUstream_st *stream);

/* One step of SGD over many tensors, with the gradients unscaled and the half copies made on the
 * way: g = grad / scale + weight_decay * p buf = is_first_step ? g : momentum * buf + (1 -
 * dampening) * g      (where momentum is not 0) p -= lr * (nesterov ? g + momentum * buf : buf);
 * half = round(p) Nothing at all is written when *found is not 0 (kernel_finite over the same
 * gradients, queued before). tensors: [tensor_count]; the table is host memory and is read before
 * the call returns scale: one f32, a power of two keeps it exact; found: one u32 or NULL; both on
 * the device for the kernel Halves are rounded to nearest even; a NaN is stored as 0x7fff.
 * Deterministic. The kernel returns 0 or the CUDA error of the launch. Source: torch.optim.SGD's
 * update (PyTorch 2.x documentation); Sutskever et al. 2013, eq. 1-2. */
void kernel_sgd_ref(const struct kernel_sgd_tensor *tensors, uint32_t tensor_count,
                    const struct kernel_sgd *sgd, const float *scale, const uint32_t *found);
/* The kernel takes lr, momentum and is_first_step from `rates`, on the device, where that is not
 * NULL; every tensor has a momentum then, if one may come. */
int kernel_sgd(const struct kernel_sgd_tensor *tensors, uint32_t tensor_count,
               const struct kernel_sgd *sgd, const struct kernel_rates *rates, const float *scale,
               const uint32_t *found, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
