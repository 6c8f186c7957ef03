/* Optimizers: SGD, Adam and AdamW, LARS and LARC, and Lookahead around any of them.
 * Common rules: kernels.h.
 *
 * Common to all:
 *   tensors  [tensor_count], host memory: parameter tensors or slices of the arenas; no two arrays
 *            of a call overlap
 *   grad     multiplied by *scale (the loss scale); the step divides by it again
 *   half     the 16-bit copy of the parameter that the net computes with, written by the step:
 *            half = round(p) to half_type, to nearest even, a NaN as 0x7fff. NULL: none.
 *   rates    learning rate and momentum of this step on the device; NULL: take those of the options
 *   scale    one f32; a power of two makes the division exact
 *   found    one u32 from kernel_finite(): nothing at all is written where it is not 0;
 *            NULL: always step
 *   applied  one u32, the number of steps that were applied before this one
 * For a kernel rates, scale, found and applied are on the device, so a step needs nothing from the
 * host. For a reference they are on the host.
 *
 * In the formulas: p parameter (master), g gradient, lr learning rate, t = *applied + 1. */
#ifndef KERNELS_OPTIMIZER_H
#define KERNELS_OPTIMIZER_H

#include "kernels/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- rates ---- */

/* What a schedule changes from step to step. A captured step reads these values again in every
 * replay. */
struct kernel_rates {
    float lr, momentum;     /* SGD, LARS */
    double wide_lr, beta1;  /* Adam */
    uint64_t is_first_step; /* SGD: 0 or 1 */
};

/* *rates = *values. `values` is host memory, read before the call returns. */
void kernel_rates_ref(struct kernel_rates *rates, const struct kernel_rates *values);
int kernel_rates(struct kernel_rates *rates, const struct kernel_rates *values,
                 struct CUstream_st *stream);

/* ---- SGD ---- */

struct kernel_sgd_tensor {
    const void *grad; /* [count] of sgd.grad_type */
    float *master;    /* [count] f32, updated in place */
    float *momentum;  /* [count] f32, updated in place; may be NULL where momentum is always 0 */
    void *half;       /* [count] of sgd.half_type, written; NULL: none */
    size_t count;     /* elements, 0 allowed */
};

struct kernel_sgd {
    enum kernel_type grad_type;
    enum kernel_type half_type; /* KERNEL_F16 or KERNEL_BF16 where a tensor has `half` */
    float lr, momentum, dampening, weight_decay;
    bool nesterov;
    bool is_first_step; /* the momentum buffer is written but not read */
};

/* One step of SGD over many tensors:
 *   g = grad / scale + weight_decay * p
 *   buf = is_first_step ? g : momentum * buf + (1 - dampening) * g       where momentum is not 0
 *   p = p - lr * (nesterov ? g + momentum * buf : buf)                   (momentum 0: lr * g)
 * The kernel takes lr, momentum and is_first_step from `rates`.
 * Source: torch.optim.SGD; Sutskever et al. 2013, equations 1 and 2. */
void kernel_sgd_ref(const struct kernel_sgd_tensor *tensors, uint32_t tensor_count,
                    const struct kernel_sgd *sgd, const float *scale, const uint32_t *found);
int kernel_sgd(const struct kernel_sgd_tensor *tensors, uint32_t tensor_count,
               const struct kernel_sgd *sgd, const struct kernel_rates *rates, const float *scale,
               const uint32_t *found, struct CUstream_st *stream);

/* ---- Adam, AdamW ---- */

struct kernel_adam_tensor {
    const void *grad;                     /* [count] of adam.grad_type */
    float *master, *exp_avg, *exp_avg_sq; /* [count] f32, updated in place; averages start at 0 */
    void *half;                           /* [count] of adam.half_type, written; NULL: none */
    size_t count;                         /* elements, 0 allowed */
};

struct kernel_adam {
    enum kernel_type grad_type;
    enum kernel_type half_type; /* KERNEL_F16 or KERNEL_BF16 where a tensor has `half` */
    double lr, beta1, beta2, weight_decay;
    float eps;     /* > 0 */
    bool is_adamw; /* weight decay directly on the parameter, not through the gradient */
};

/* One step of Adam or AdamW, with m = exp_avg and v = exp_avg_sq:
 *   g = grad / scale
 *   Adam:   g = g + weight_decay * p
 *   AdamW:  p = p * (1 - lr * weight_decay)
 *   m = m + (1 - beta1) * (g - m)
 *   v = beta2 * v + (1 - beta2) * g * g
 *   p = p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 * Scalars are computed in double and rounded to f32 once; powers by repeated squaring. The kernel
 * takes lr and beta1 from `rates`.
 * Sources: torch.optim.Adam and AdamW; Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019,
 * algorithm 2. */
void kernel_adam_ref(const struct kernel_adam_tensor *tensors, uint32_t tensor_count,
                     const struct kernel_adam *adam, const float *scale, const uint32_t *found,
                     const uint32_t *applied);
int kernel_adam(const struct kernel_adam_tensor *tensors, uint32_t tensor_count,
                const struct kernel_adam *adam, const struct kernel_rates *rates,
                const float *scale, const uint32_t *found, const uint32_t *applied,
                struct CUstream_st *stream);

/* ---- LARS, LARC ---- */

/* A whole parameter tensor, not a slice: its norms are measured. */
struct kernel_lars_tensor {
    const void *grad; /* [count] of lars.grad_type */
    float *master;    /* [count] f32, updated in place */
    float *momentum;  /* [count] f32, updated in place, starts at 0; may be NULL without momentum */
    void *half;       /* [count] of lars.half_type, written; NULL: none */
    size_t count;     /* elements, 0 allowed */
    bool adapts;      /* false: the ratio below is 1 */
};

struct kernel_lars {
    enum kernel_type grad_type, half_type;
    float lr, momentum, weight_decay;
    float trust;   /* the trust coefficient */
    float eps;     /* LARC only */
    bool nesterov; /* LARC only */
    bool is_larc;
};

/* One step of LARS, or of Apex's LARC around SGD. |p| and |g| are L2 norms of the whole tensor,
 * g = grad / scale.
 *   LARS:  ratio = trust * |p| / (|g| + weight_decay * |p|)     1 where |p| or the divisor is 0
 *          buf = momentum * buf + lr * ratio * (g + weight_decay * p)
 *          p = p - buf
 *   LARC:  ratio = min(1, trust * |p| / (|g| + weight_decay * |p| + eps) / lr)
 *                  1 where |p| is 0; 0 where |g| is 0 (Apex leaves such a gradient at 0)
 *          d = ratio * (g + weight_decay * p)
 *          buf = momentum * buf + d
 *          p = p - lr * (nesterov ? d + momentum * buf : buf)
 * Squares are added in double, in the order of grad_norm.h. The kernel takes lr and momentum from
 * `rates`.
 *   workspace: kernel_lars_workspace() bytes on the device, 8-byte aligned; scratch
 * Sources: You, Gitman and Ginsburg 2017, algorithm 1; apex/parallel/LARC.py with clip=True. */
void kernel_lars_ref(const struct kernel_lars_tensor *tensors, uint32_t tensor_count,
                     const struct kernel_lars *lars, const float *scale, const uint32_t *found);
/* Host code. KERNEL_LARS_LAUNCH_TENSORS: tensors in one launch. */
#define KERNEL_LARS_LAUNCH_TENSORS 64
size_t kernel_lars_workspace(const struct kernel_lars_tensor *tensors, uint32_t tensor_count);
int kernel_lars(const struct kernel_lars_tensor *tensors, uint32_t tensor_count,
                const struct kernel_lars *lars, const struct kernel_rates *rates, void *workspace,
                const float *scale, const uint32_t *found, struct CUstream_st *stream);

/* ---- Lookahead ---- */

struct kernel_lookahead_tensor {
    float *master, *slow; /* [count] f32 */
    void *half;           /* [count] of lookahead.half_type, written; NULL: none */
    size_t count;         /* elements, 0 allowed */
};

struct kernel_lookahead {
    enum kernel_type half_type;
    bool is_paper;  /* when the slow weights are made and joined, see below */
    uint32_t every; /* k, at least 1 */
    float alpha;
};

/* Lookahead around another optimizer: kernel_lookahead_before, the optimizer's step,
 * kernel_lookahead. To join is:
 *   slow = slow + alpha * (p - slow)
 *   p = slow
 *   half = round(p)
 * With is_paper (Zhang et al. 2019, algorithm 1):
 *   before step 1:  slow = p
 *   after step t:   join where t is a multiple of k
 * Without (alphadl/lookahead.pytorch, which makes the slow weights at its first update):
 *   after step 1:   slow = p
 *   after step t:   join where t > 1 and t - 1 is a multiple of k */
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
