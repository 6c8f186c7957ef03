/* Kernels over arrays of elements. Common rules: kernels.h.
 *
 * Counts: any. Addresses: aligned to the element type; 16-byte alignment is the fast path.
 * Arithmetic: elements are read as f32, computed in f32 and rounded once to nearest even. A NaN is
 * stored as 0x7fff in a 16-bit type.
 * Speed: all are bound by memory; each element is read once and written once. */
#ifndef KERNELS_ELEMENTS_H
#define KERNELS_ELEMENTS_H

#include "kernels/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to[i] = from[i], rounded where `to` is narrower; a value beyond its range becomes infinity.
 *   to, from: [count], not overlapping; the same address is allowed if the types are equal */
void kernel_cast_ref(void *to, enum kernel_type to_type, const void *from,
                     enum kernel_type from_type, size_t count);
int kernel_cast(void *to, enum kernel_type to_type, const void *from, enum kernel_type from_type,
                size_t count, struct CUstream_st *stream);

/* to[i] = from[i] * factor.
 *   to, from: [count], not overlapping; the same address is allowed if the types are equal */
void kernel_scale_ref(void *to, enum kernel_type to_type, const void *from,
                      enum kernel_type from_type, float factor, size_t count);
int kernel_scale(void *to, enum kernel_type to_type, const void *from, enum kernel_type from_type,
                 float factor, size_t count, struct CUstream_st *stream);

/* y[i] = a[i] + b[i];  with `relu`: y[i] = max(0, a[i] + b[i])
 *   y, a, b: [count] of `type`; y may be a or b */
void kernel_add_ref(void *y, const void *a, const void *b, enum kernel_type type, bool relu,
                    size_t count);
int kernel_add(void *y, const void *a, const void *b, enum kernel_type type, bool relu,
               size_t count, struct CUstream_st *stream);

/* Gradient accumulation over several batches:
 *   to[i] = to[i] + scale * from[i]      the product is rounded to f32 first
 *   from[i] = 0                          with `clear`
 *   to, from: [count], not overlapping
 *   scale: 1 for a plain sum */
void kernel_accumulate_ref(void *to, enum kernel_type to_type, void *from,
                           enum kernel_type from_type, float scale, bool clear, size_t count);
int kernel_accumulate(void *to, enum kernel_type to_type, void *from, enum kernel_type from_type,
                      float scale, bool clear, size_t count, struct CUstream_st *stream);

/* y[i] = x[i] where x[i] > 0 or x[i] is a NaN, else 0.
 *   y, x: [count] of `type`; y may be x
 * Source: torch.relu. */
void kernel_relu_ref(void *y, const void *x, enum kernel_type type, size_t count);
int kernel_relu(void *y, const void *x, enum kernel_type type, size_t count,
                struct CUstream_st *stream);

/* dx[i] = dy[i] where y[i] > 0 or y[i] is a NaN, else 0.
 *   y: [count] of `type`, the output of the ReLU
 *   dy, dx: [count] of `type`; dx may be dy or y
 * For y = relu(a + b), dx is the gradient of both a and b.
 * Source: torch's threshold_backward. */
void kernel_relu_backward_ref(void *dx, const void *y, const void *dy, enum kernel_type type,
                              size_t count);
int kernel_relu_backward(void *dx, const void *y, const void *dy, enum kernel_type type,
                         size_t count, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
