/* Optimizers other than SGD: Adam, LARS, Lookahead. As in kernels.h: the twin (_ref) is the
 * definition, every operation is rounded once, kernels take device pointers.
 *
 * Common to all: one table of tensors a call, in host memory, read before the call returns; nothing
 * at all is written where *found is not 0 (NULL: never); `half`, where not NULL, gets the new
 * parameter rounded to half_type. `scale`, `found` and `applied` (steps taken before this one) are
 * on the device for a kernel, so a step needs nothing from the host; so are `rates`, which a kernel
 * takes lr, momentum and beta1 from where they are not NULL. Deterministic. Kernels return 0 or the
 * CUDA error of the launch. */
#ifndef KERNELS_KERNELS_OPTIM_H
#define KERNELS_KERNELS_OPTIM_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One parameter tensor, or a slice of the arenas. No overlap between any two arrays of a call. */
struct kernel_adam_tensor {
    const void *grad;                     /* [count] of adam.grad_type, multiplied by *scale */
    float *master, *exp_avg, *exp_avg_sq; /* [count] f32, updated in place; states begin as 0 */
    void *half;                           /* [count] of adam.half_type, written; NULL: none */
    size_t count;                         /* elements, 0 allowed */
};

struct kernel_adam {
    enum kernel_type grad_type;
    enum kernel_type half_type; /* KERNEL_F16 or KERNEL_BF16 where a tensor has `half` */
    double lr, beta1, beta2, weight_decay;
    float eps;     /* > 0 */
    bool is_adamw; /* weight decay off the parameter, not into the gradient */
};

/* One step of Adam or AdamW, t = *applied + 1, g = grad / scale:
 *   adam: g += weight_decay * p;  adamw: p *= 1 - lr * weight_decay
 *   m += (1 - beta1) * (g - m);  v = beta2 * v + (1 - beta2) * g * g
 *   p -= lr / (1 - beta1^t) * (m / (sqrt(v) / sqrt(1 - beta2^t) + eps))
 * Scalars are computed in double and rounded once; powers by repeated squaring. Source:
 * torch.optim.Adam and AdamW (PyTorch 2.x documentation); Kingma and Ba 2015; Loshchilov and
 * Hutter 2019. */
void kernel_adam_ref(const struct kernel_adam_tensor *tensors, uint32_t tensor_count,
                     const struct kernel_adam *adam, const float *scale, const uint32_t *found,
                     const uint32_t *applied);
int kernel_adam(const struct kernel_adam_tensor *tensors, uint32_t tensor_count,
                const struct kernel_adam *adam, const struct kernel_rates *rates,
                const float *scale, const uint32_t *found, const uint32_t *applied,
                struct CUstream_st *stream);

/* A whole parameter tensor: its norms are measured. */
struct kernel_lars_tensor {
    const void *grad; /* [count] of lars.grad_type, multiplied by *scale */
    float *master;    /* [count] f32, updated in place */
    float *momentum;  /* [count] f32, updated in place, begins as 0; may be NULL where lars.momentum
                         is 0 */
    void *half;       /* [count] of lars.half_type, written; NULL: none */
    size_t count;     /* elements, 0 allowed */
    bool adapts;      /* false: the ratio is 1 */
};

struct kernel_lars {
    enum kernel_type grad_type, half_type;
    float lr, momentum, weight_decay;
    float trust;   /* the trust coefficient */
    float eps;     /* LARC alone */
    bool nesterov; /* LARC alone */
    bool is_larc;
};

/* One step of LARS or of Apex's LARC around SGD; |p|, |g| are norms of the whole tensor, g = grad /
 * scale:
 *   LARS: ratio = trust * |p| / (|g| + weight_decay * |p|), 1 where |p| or the divisor is 0
 *         buf = momentum * buf + lr * ratio * (g + weight_decay * p);  p -= buf
 *   LARC: ratio = min(1, trust * |p| / (|g| + weight_decay * |p| + eps) / lr)
 *         1 where |p| is 0, 0 where |g| is 0 (Apex leaves such a gradient at 0)
 *         d = ratio * (g + weight_decay * p);  buf = momentum * buf + d
 *         p -= lr * (nesterov ? d + momentum * buf : buf)
 * Squares are added up in double, in the order of kernels/norm.h. `workspace` has
 * kernel_lars_workspace() bytes on the device, 8-byte aligned, and holds nothing between calls.
 * Source: You, Gitman and Ginsburg 2017, algorithm 1; apex/parallel/LARC.py with clip=True. */
void kernel_lars_ref(const struct kernel_lars_tensor *tensors, uint32_t tensor_count,
                     const struct kernel_lars *lars, const float *scale, const uint32_t *found);
size_t kernel_lars_workspace(const struct kernel_lars_tensor *tensors, uint32_t tensor_count);
int kernel_lars(const struct kernel_lars_tensor *tensors, uint32_t tensor_count,
                const struct kernel_lars *lars, const struct kernel_rates *rates, void *workspace,
                const float *scale, const uint32_t *found, struct CUstream_st *stream);

struct kernel_lookahead_tensor {
    float *master, *slow; /* [count] f32 */
    void *half;           /* [count] of lookahead.half_type; NULL: none */
    size_t count;         /* elements, 0 allowed */
};

struct kernel_lookahead {
    enum kernel_type half_type;
    bool is_paper;  /* else seed 2's: see below */
    uint32_t every; /* k, at least 1 */
    float alpha;
};

/* Around each step of another optimizer, t = *applied + 1 in both:
 *   before it: where is_paper and t is 1, slow = p
 *   behind it: is_paper: a turn where t is a multiple of k
 *              else: where t is 1, slow = p; a turn where t - 1 is another multiple of k
 *   a turn: slow += alpha * (p - slow); p = slow; half = round(p)
 * Source: Zhang et al. 2019, algorithm 1; alphadl/lookahead.pytorch, whose slow weights are made at
 * the first update, behind step 1. */
void kernel_lookahead_before_ref(const struct kernel_lookahead_tensor *tensors,
                                 uint32_t tensor_count, const struct kernel_lookahead *lookahead,
                                 const uint32_t *found, const uint32_t *applied);
void kernel_lookahead_ref(const struct kernel_lookahead_tensor *tensors, uint32_t tensor_count,
                          const struct kernel_lookahead *lookahead, const uint32_t *found,
                          const uint32_t *applied);
int kernel_lookahead_before(const struct kernel_lookahead_tensor *tensors, uint32_t tensor_count,
                            const struct kernel_lookahead *lookahead, const uint32_t *found,
                            const uint32_t *applied, struct CUstream_st *stream);
int kernel_lookahead(const struct kernel_lookahead_tensor *tensors, uint32_t tensor_count,
                     const struct kernel_lookahead *lookahead, const uint32_t *found,
                     const uint32_t *applied, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
