/* Training: the loop over epochs and steps, on one rank of `place->world`. */
#ifndef WORKER_TRAIN_H
#define WORKER_TRAIN_H

#include "common/status.h"
#include "worker/agent.h"
#include "worker/options.h"

struct train;

/* Data, net and, with several ranks, the mesh and everybody's equal parameters; goes on from a
 * checkpoint where one is asked for. Blocks until the world has met. All pointers are borrowed
 * until train_free, which has to be called on failure too: to give a device back may take a while,
 * and the caller knows how long it may. */
enum status train_new(struct train **train, const struct options *options,
                      const struct agent_place *place, struct agent *agent, struct err *err);
/* Prints the graph after each pass and what the net takes, on stdout. */
enum status train_print_graph(const struct options *options, const struct agent_place *place,
                              struct err *err);
void train_free(struct train **train);

/* Trains to the end, or until `*stop` becomes true: then the step is finished, rank 0 writes a
 * checkpoint, and the status is STATUS_CLOSED. Rank 0 prints. With --evaluate only validates. */
enum status train_run(struct train *train, const volatile bool *stop, struct err *err);

#endif
