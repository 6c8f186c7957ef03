/* Passes over a graph: each makes a new graph and leaves the old one unchanged. */
#ifndef WORKER_GRAPH_PASS_H
#define WORKER_GRAPH_PASS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/graph/amp.h"
#include "worker/graph/graph.h"

/* Mixed precision: sets the type of every value and tensor and inserts casts.
 *
 * Values:
 *   conv2d, linear   read and write amp->half
 *   cross_entropy    reads fp32
 *   add              the wider of its two inputs
 *   the rest         the type of the input
 *   input            fp32; under O2 and O3 it is cast to amp->half
 * A value that several layers need in another type is cast once. A cast is named LAYER.fp16.
 *
 * Tensors of conv2d and linear: dtype amp->half; a master if the level has masters; gradients in
 * amp->half, or in fp32 under O1. (Under O1 the weight is cast in every step, and its gradient goes
 * back through the cast: it is rounded once, kept in fp32 and reduced in fp32.) Tensors of a batch
 * norm stay fp32 where amp->norm_is_fp32, else they are like those of conv2d.
 *
 * With O0 a copy. Errors: STATUS_MEMORY, STATUS_TOO_BIG (over GRAPH_LAYERS_MAX with the casts). */
enum status pass_amp(const struct graph *graph, const struct amp *amp, struct graph **out,
                     struct err *err);

/* Merges element-wise layers into the layer before them, so that a backend passes over memory once.
 * Each step needs a value that only the merged layer reads:
 *   1. batch_norm + add     if the other summand comes earlier: fused_add
 *   2. batch_norm + relu, add + relu:                           fused_relu
 *   3. batch_norm + max_pool of 2x2, stride 2, even height and width, fp32 only: fused_pool
 * A pool over halves stays a layer: rounding creates ties, and PyTorch's rule for ties decides
 * which input gets the gradient. Tensors keep their order and names.
 *   adds_half: also fuse additions in fp16 and bf16. The output of the norm is then not rounded
 *              before the sum, only the sum is; PyTorch rounds both.
 * Errors: STATUS_MEMORY. */
enum status pass_fuse(const struct graph *graph, bool adds_half, struct graph **out,
                      struct err *err);
/* After that: fused_add with rounds_norm for the additions in fp16 and bf16 that are left, with the
 * ReLU after them. For backends that round the norm's output before the sum, as PyTorch does. */
void pass_fuse_adds(struct graph *graph);
/* After pass_fuse: fused_pool for every max pool behind a batch norm with a ReLU, of any window and type.
 * For backends that round in between, so that ties stay as they are. */
void pass_fuse_pools(struct graph *graph);

/* Orders gradients as backward completes them and cuts them into buckets: tensors in reverse order,
 * one type per bucket. A bucket closes when its gradients reach the limit: `first_bytes` for the
 * first bucket of a type, `bytes` for the others. Bytes are those of the gradients, without a
 * backend's padding. Errors: STATUS_MEMORY.
 * Source: compute_bucket_assignment_by_size in PyTorch's reducer.cpp. */
enum status pass_buckets(const struct graph *graph, uint64_t first_bytes, uint64_t bytes,
                         struct graph **out, struct err *err);

#endif
