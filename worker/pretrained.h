/* --pretrained: parameters from a safetensors file, by torchvision's state_dict names. */
#ifndef WORKER_PRETRAINED_H
#define WORKER_PRETRAINED_H

#include <stdbool.h>

#include "common/status.h"
#include "worker/graph.h"
#include "worker/net.h"

/* Every parameter and buffer of `net` from `path`; fp32, fp16 and bf16 are read.
 * num_batches_tracked and, in our own checkpoints, "optimizer." are ignored; all else has to be
 * there, have the same shape, and nothing may be left over. `new_classifier`: the last linear layer
 * stays as it is, whatever the file has. `graph` is the one that `net` was made from. On failure
 * the net may have some of the values. Errors: STATUS_CONFLICT (names or shapes, all before a value
 * is read), STATUS_UNSUPPORTED (a type), and those of safetensors_open. */
enum status pretrained_load(struct net *net, const struct graph *graph, const char *path,
                            bool new_classifier, struct err *err);

#endif
