/* The AMP pass: types for every value and tensor, and the casts between them. */
#ifndef WORKER_PASS_AMP_H
#define WORKER_PASS_AMP_H

#include "common/status.h"
#include "worker/amp.h"
#include "worker/graph.h"

/* Convolutions and linear layers read and make amp->low, cross-entropy reads fp32, add the widest
 * of its inputs, the rest keeps its input's type; under O2 and O3 the network's input is cast too.
 * A value is cast once for all who want it so; casts are named NAME.fp16. Weights and biases of
 * layers that compute in low get that dtype, a master where the level has them, and the gradient
 * type of the level: the gradient of a weight that is cast in every step (O1) goes back through
 * the cast, rounded once, and is kept and reduced in fp32. With O0 a copy. Errors: STATUS_MEMORY,
 * STATUS_TOO_BIG (more layers than a graph may have). */
enum status pass_amp(const struct graph *graph, const struct amp *amp, struct graph **out,
                     struct err *err);

#endif
