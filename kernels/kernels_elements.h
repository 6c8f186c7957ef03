/* Kernels over elements: each a file pair as kernels.h has it, equal to its twin to the bit.
 *
 * Any count and any alignment of the element type; 16-byte addresses are the fast way. Values are
 * read as f32, computed in f32, rounded once to nearest even (a NaN becomes 0x7fff). All are bound
 * by memory: each value is read once and written once. Every kernel is queued on `stream` and
 * returns 0 or the CUDA error of its launch; nothing is allocated or waited for, host pointers are
 * read before it returns, so all can be captured in a CUDA graph. All are deterministic. */
#ifndef KERNELS_KERNELS_ELEMENTS_H
#define KERNELS_KERNELS_ELEMENTS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to = from, rounded where `to` is narrower; beyond its range: infinity. No overlap, but the same
 * memory where both types are the same. */
void kernel_cast_ref(void *to, enum kernel_type to_type, const void *from,
                     enum kernel_type from_type, size_t count);
int kernel_cast(void *to, enum kernel_type to_type, const void *from, enum kernel_type from_type,
                size_t count, struct CUstream_st *stream);

/* to = from * factor, in f32 and rounded once. No overlap, but the same memory where both types are
 * the same. */
void kernel_scale_ref(void *to, enum kernel_type to_type, const void *from,
                      enum kernel_type from_type, float factor, size_t count);
int kernel_scale(void *to, enum kernel_type to_type, const void *from, enum kernel_type from_type,
                 float factor, size_t count, struct CUstream_st *stream);

/* y = a + b, cut at 0 where `relu`. All of one type; y may be a or b. */
void kernel_add_ref(void *y, const void *a, const void *b, enum kernel_type type, bool relu,
                    size_t count);
int kernel_add(void *y, const void *a, const void *b, enum kernel_type type, bool relu,
               size_t count, struct CUstream_st *stream);

/* to = to + scale * from, the product rounded to f32 first; then from = 0 where `clear`: gradients
 * that are kept over several batches. `scale`: 1 for a plain sum. */
void kernel_accumulate_ref(void *to, enum kernel_type to_type, void *from,
                           enum kernel_type from_type, float scale, bool clear, size_t count);
int kernel_accumulate(void *to, enum kernel_type to_type, void *from, enum kernel_type from_type,
                      float scale, bool clear, size_t count, struct CUstream_st *stream);

/* y = x where it is above 0 or a NaN, else 0 (torch.relu). y may be x. */
void kernel_relu_ref(void *y, const void *x, enum kernel_type type, size_t count);
int kernel_relu(void *y, const void *x, enum kernel_type type, size_t count,
                struct CUstream_st *stream);

/* dx = dy where the ReLU's result y was not cut off, else 0 (torch's threshold_backward: a NaN in y
 * lets dy pass). Behind an addition dx is the gradient of both sides. dx may be dy or y. */
void kernel_relu_backward_ref(void *dx, const void *y, const void *dy, enum kernel_type type,
                              size_t count);
int kernel_relu_backward(void *dx, const void *y, const void *dy, enum kernel_type type,
                         size_t count, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
