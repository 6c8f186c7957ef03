/* What of the stand-in's kernels ends a step; private to tests/lib/standin_*.c. */
#ifndef TESTS_LIB_STANDIN_STEP_H
#define TESTS_LIB_STANDIN_STEP_H

#include "worker/backend/cuda/cuda_kernels.h"

int standin_finite(const struct kernel_values *tensors, uint32_t tensor_count,
                   enum kernel_type type, uint32_t *found, struct CUstream_st *stream);
int standin_scale(void *to, enum kernel_type to_type, const void *from, enum kernel_type from_type,
                  float factor, size_t count, struct CUstream_st *stream);
int standin_sgd(const struct kernel_sgd_tensor *tensors, uint32_t tensor_count,
                const struct kernel_sgd *sgd, const struct kernel_rates *rates, const float *scale,
                const uint32_t *found, struct CUstream_st *stream);
int standin_rates(struct kernel_rates *rates, const struct kernel_rates *values,
                  struct CUstream_st *stream);
int standin_clip(const struct kernel_span *spans, uint32_t span_count,
                 const struct kernel_clip *clip, const float *scale, const uint32_t *found,
                 void *scratch, struct CUstream_st *stream);
int standin_scaler_step(struct kernel_scaler *scaler, bool used_momentum,
                        struct CUstream_st *stream);
int standin_adam(const struct kernel_adam_tensor *tensors, uint32_t tensor_count,
                 const struct kernel_adam *adam, const struct kernel_rates *rates,
                 const float *scale, const uint32_t *found, const uint32_t *applied,
                 struct CUstream_st *stream);
size_t standin_lars_workspace(const struct kernel_lars_tensor *tensors, uint32_t tensor_count);
int standin_lars(const struct kernel_lars_tensor *tensors, uint32_t tensor_count,
                 const struct kernel_lars *lars, const struct kernel_rates *rates, void *workspace,
                 const float *scale, const uint32_t *found, struct CUstream_st *stream);
int standin_lookahead_before(const struct kernel_lookahead_tensor *tensors, uint32_t tensor_count,
                             const struct kernel_lookahead *lookahead, const uint32_t *found,
                             const uint32_t *applied, struct CUstream_st *stream);
int standin_lookahead(const struct kernel_lookahead_tensor *tensors, uint32_t tensor_count,
                      const struct kernel_lookahead *lookahead, const uint32_t *found,
                      const uint32_t *applied, struct CUstream_st *stream);

#endif
