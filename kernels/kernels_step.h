/* Kernels of a step's end: clipping, the loss scaler. Rules on types, streams and equality with the
 * twins: kernels_elements.h. */
#ifndef KERNELS_KERNELS_STEP_H
#define KERNELS_KERNELS_STEP_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KERNEL_SPANS_MAX                                                                           \
    64 /* of one call; slices of one arena and type that touch are one span                        \
        */

/* Values of any type, changed in place. */
struct kernel_span {
    void *values;
    size_t count;
    enum kernel_type type;
};

/* 0: not. */
struct kernel_clip {
    float value; /* every value to within -value and value; a NaN stays one */
    float norm;  /* then all times min(1, norm / (their L2 norm + 1e-6)) */
};

#define KERNEL_CLIP_BLOCKS 1024
#define KERNEL_CLIP_SCRATCH_BYTES ((KERNEL_CLIP_BLOCKS + 1) * 8)

/* Clips all spans together, as net_clip in worker/net.h has it. The values are multiplied by *scale
 * and stay so; limits and norm are those of the values without it. Nothing is changed where *found
 * (may be NULL) is not 0. spans: [span_count], host memory, at most KERNEL_SPANS_MAX. scratch:
 * KERNEL_CLIP_SCRATCH_BYTES, 8-byte aligned. Squares are added in double: block by block, then the
 * blocks; a NaN among the values makes all of them one, as torch does. Up to three launches, bound
 * by memory: values are read, and read and written again where the norm is too large. Sources:
 * torch.nn.utils.clip_grad_value_ and clip_grad_norm_. */
void kernel_clip_ref(const struct kernel_span *spans, uint32_t span_count,
                     const struct kernel_clip *clip, const float *scale, const uint32_t *found,
                     void *scratch);
int kernel_clip(const struct kernel_span *spans, uint32_t span_count,
                const struct kernel_clip *clip, const float *scale, const uint32_t *found,
                void *scratch, struct CUstream_st *stream);

/* The loss scaler's state: worker/scaler.h's struct scaler, field by field (a test compares the
 * two). */
struct kernel_scaler {
    float scale;
    uint32_t unskipped, found_inf, was_skipped, skipped_in_a_row, has_momentum;
    float min, max;
    uint32_t window, is_dynamic;
    uint32_t applied;
};

/* Ends a step: takes note of momentum buffers that were filled unless the step was skipped, then
 * scaler_step() of worker/scaler.h. One thread; scaler on the device. */
void kernel_scaler_step_ref(struct kernel_scaler *scaler, bool used_momentum);
int kernel_scaler_step(struct kernel_scaler *scaler, bool used_momentum,
                       struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
