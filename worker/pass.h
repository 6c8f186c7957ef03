/* Passes over a graph: each makes a new graph and leaves the old one as it is. */
#ifndef WORKER_PASS_H
#define WORKER_PASS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/graph.h"

/* Merges into a batch norm the addition of something earlier where only that reads it; into a batch
 * norm or an addition the ReLU behind it; and then a 2x2 max pool of stride 2 over even height and
 * width; a pool over fp16 or bf16 stays a layer, because values that were rounded to the same tie
 * and ties decide where the gradient goes. Tensors keep their order and names.
 * `adds_low`: also additions in fp16 and bf16. What the norm makes is then not rounded before the
 * sum, which is, once: unlike layer by layer, as PyTorch does. Errors: STATUS_MEMORY. */
enum status pass_fuse(const struct graph *graph, bool adds_low, struct graph **out,
                      struct err *err);

/* Orders gradients as backward completes them and cuts them into buckets as PyTorch's
 * compute_bucket_assignment_by_size does: tensors in reverse order, those of one type together; a
 * bucket closes as soon as its bytes reach the limit, `first_bytes` for a type's first and `bytes`
 * for the others. Bytes are of the gradients' type, without a backend's padding.
 * Errors: STATUS_MEMORY. */
enum status pass_buckets(const struct graph *graph, uint64_t first_bytes, uint64_t bytes,
                         struct graph **out, struct err *err);

#endif
