/* What a training step does with its gradients around the optimizer: the finite check, clipping,
 * and the update of the loss scaler. Common rules: kernels.h. */
#ifndef KERNELS_GRADIENTS_H
#define KERNELS_GRADIENTS_H

#include "kernels/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- finite check ---- */

struct kernel_values {
    const void *values; /* [count], aligned to its type */
    size_t count;       /* 0 allowed */
};

/* *found = 1 where any value is an infinity or a NaN. Never cleared: zero it before the first call
 * of a step, so that several calls give the OR.
 *   tensors: [tensor_count], host memory
 *   found:   one u32
 * Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.2. */
void kernel_finite_ref(const struct kernel_values *tensors, uint32_t tensor_count,
                       enum kernel_type type, uint32_t *found);
int kernel_finite(const struct kernel_values *tensors, uint32_t tensor_count, enum kernel_type type,
                  uint32_t *found, struct CUstream_st *stream);

/* ---- clipping ---- */

#define KERNEL_SPANS_MAX 64 /* spans in one call; adjacent slices of one type make one span */

/* Values of any type, changed in place. */
struct kernel_span {
    void *values;
    size_t count;
    enum kernel_type type;
};

struct kernel_clip {
    float value; /* limit of each gradient's magnitude; 0: none */
    float norm;  /* limit of the L2 norm over all gradients; 0: none */
};

#define KERNEL_CLIP_BLOCKS 1024
#define KERNEL_CLIP_SCRATCH_BYTES ((KERNEL_CLIP_BLOCKS + 1) * 8)

/* Clips all spans together. The values are gradients times *scale, before and after the call. The
 * limits apply to the gradients without the scale:
 *   v = min(max(v, -value * scale), value * scale)        where value > 0; a NaN stays a NaN
 *   v = v * min(1, norm / (|all v| / scale + 1e-6))       where norm > 0
 * A NaN makes every value a NaN in the second line, as in torch.
 *   spans:   [span_count], host memory, at most KERNEL_SPANS_MAX
 *   scale:   one f32
 *   found:   one u32: nothing is changed where it is not 0; NULL: always clip
 *   scratch: KERNEL_CLIP_SCRATCH_BYTES, 8-byte aligned
 * Squares are added in double, block by block, then the blocks.
 * Speed: up to three launches, bound by memory: values are read once, and read and written again
 * where the norm is above the limit.
 * Sources: torch.nn.utils.clip_grad_value_ and clip_grad_norm_. */
void kernel_clip_ref(const struct kernel_span *spans, uint32_t span_count,
                     const struct kernel_clip *clip, const float *scale, const uint32_t *found,
                     void *scratch);
int kernel_clip(const struct kernel_span *spans, uint32_t span_count,
                const struct kernel_clip *clip, const float *scale, const uint32_t *found,
                void *scratch, struct CUstream_st *stream);

/* ---- loss scaler ---- */

/* The state of the loss scaler: struct scaler of worker/net/scaler.h, field by field (a test
 * compares the two). */
struct kernel_scaler {
    float scale;
    uint32_t unskipped, found_inf, was_skipped, skipped_in_a_row, has_momentum;
    float min, max;
    uint32_t window, is_dynamic;
    uint32_t applied;
};

/* End of a step. With a dynamic scale:
 *   found_inf:                     scale = max(scale / 2, min), the step counts as skipped
 *   `window` steps without a skip: scale = min(scale * 2, max)
 * Then found_inf = 0. With used_momentum, a step with finite gradients also sets has_momentum: from
 * then on the momentum buffers hold values. Same as scaler_step() of worker/net/scaler.h.
 *   scaler: on the device for the kernel, which runs it in one thread
 * Source: torch.amp.GradScaler.update. */
void kernel_scaler_step_ref(struct kernel_scaler *scaler, bool used_momentum);
int kernel_scaler_step(struct kernel_scaler *scaler, bool used_momentum,
                       struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
