/* --pretrained: parameters from a safetensors or .pth file, by torchvision's state_dict names. */
#ifndef WORKER_MODEL_PRETRAINED_H
#define WORKER_MODEL_PRETRAINED_H

#include <stdbool.h>

#include "common/status.h"
#include "worker/graph/graph.h"
#include "worker/net/net.h"

/* Reads every parameter and buffer of `net` from `path`, which is safetensors (in fp32, fp16,
 * bf16 or fp64) or a .pth of torch.save (worker/pth/pth.h; all its types).
 *
 * Names and shapes must match exactly; a missing or an extra tensor is an error. Ignored:
 * num_batches_tracked, and "optimizer." in our own checkpoints.
 *   graph:          the one that `net` was made from
 *   new_classifier: the last linear layer keeps its values, whatever the file has
 *   taken:          its text: what of the file was taken, "its state_dict"; "": all of it
 * Errors: STATUS_CONFLICT (names or shapes; nothing was changed), STATUS_UNSUPPORTED (a type; the
 * same), those of opening and reading the file (part of the values may have been changed). */
enum status pretrained_load(struct net *net, const struct graph *graph, const char *path,
                            bool new_classifier, struct err *taken, struct err *err);

/* Whether the file is one of torch.save, which --pretrained reads and --resume does not. */
bool pretrained_is_of_torch(const char *path);

#endif
