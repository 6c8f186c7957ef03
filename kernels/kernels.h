/* The project's own GPU kernels: every part of a training step that cuDNN and cuBLASLt do not do.
 *
 *     elements.h    casts, additions, ReLU: any array of elements
 *     layers.h      input images, pools, the loss, sums of columns, flatten
 *     batch_norm.h  batch norm forward and backward, also synchronised over ranks
 *     norm_pool.h   a batch norm and the max pool after it as one
 *     gradients.h   finite check, clipping, the loss scaler: around the optimizer
 *     optimizer.h   SGD, Adam, LARS, Lookahead
 *
 * Each operation is a pair of files: OP.cu has the CUDA kernel kernel_OP, OP.c has kernel_OP_ref,
 * its reference in plain C. One of the headers above has the contract of both.
 *
 * Reference: the reference defines the result. The kernel does the same arithmetic in the same
 * order, and both round after every operation (no fused multiply-add). So they agree to the bit on
 * finite values, and the tests compare bits. The CPU backend calls some references directly.
 *
 * Memory: a kernel takes device pointers, a reference takes host pointers. A table that is passed
 * by pointer (an array of tensors, a struct of options) is host memory for both and is read before
 * the call returns.
 *
 * Streams: a kernel is queued on `stream`. It allocates nothing and waits for nothing, so every
 * kernel can be captured in a CUDA graph. A reference returns when its result is complete.
 *
 * Errors: a kernel returns 0 or the CUDA error of its launch, cudaErrorInvalidValue for arguments
 * that break its contract. A reference asserts its contract.
 *
 * Determinism: all kernels and references are deterministic. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "kernels/batch_norm.h"
#include "kernels/elements.h"
#include "kernels/gradients.h"
#include "kernels/layers.h"
#include "kernels/norm_pool.h"
#include "kernels/optimizer.h"
#include "kernels/types.h"

#endif
