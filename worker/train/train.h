/* Training, on one rank: set-up, the loop over epochs and steps, checkpoints. The face of this
 * folder.
 *   setup.c       train_new: data, net, the world, the checkpoint to go on from
 *   train.c       the loop; validation, schedule, early stopping
 *   step.c        one step and its report; accumulate.c: its gradients
 *   data.c        the sets, and which images this rank sees; loading.c: their batches
 *   nccl.c        gradients by NCCL
 *   parallel.c    --data-parallel
 *   alike.c       whether all ranks train the same
 *   best.c        the checkpoint with the best validation
 *   save.c        checkpoints while training goes on; snapshot.c: the copy that is written
 *   state.c       from a checkpoint into the net
 *   position.c    where in the data training is, also after others have begun
 *   folders.c     checkpoints on nodes that share no disk; agree.c: from which all go on
 *   model.c       the model's graph and first parameters
 *   metrics.c     what rank 0 writes for people and programs: --metrics, --tensorboard
 *   trace.c       --trace: spans of some steps, of all ranks
 *   profile.c     --profile
 *   progress.c    the lines that rank 0 prints; now.c: what a rank does at an instant */
#ifndef WORKER_TRAIN_TRAIN_H
#define WORKER_TRAIN_TRAIN_H

#include "common/status.h"
#include "worker/agent.h"
#include "worker/options.h"
#include "worker/signals.h"

struct device;
struct train;

/* What a training needs. Everything is borrowed until train_free. */
struct train_setup {
    const struct options *options;
    const struct agent_place *place;
    const struct device *device; /* open */
    struct agent *agent;         /* NULL: there is no launcher */
};

/* Prepares data and net. With several ranks, connects to them and takes rank 0's parameters.
 * Resumes from a checkpoint if --resume asks for it. Blocks until all ranks have joined. train_free
 * must be called after a failure, too; freeing a device's memory may take long, and the caller
 * bounds that time. */
enum status train_new(struct train **train, const struct train_setup *setup, struct err *err);
/* Loads NCCL in advance if the device has it. train_new does so otherwise, and reports a
 * failure. */
void train_load_nccl(const struct device *device);
/* Prints the graph after each pass and what the net takes, on stdout. */
enum status train_print_graph(const struct train_setup *setup, struct err *err);
/* Times the engines of the training's and the last batch's plans; validation has the training's. Needs a GPU: else
 * STATUS_BAD_INPUT. Does not connect to other ranks: of those on a node one times, the others wait. */
enum status train_tune(const struct train_setup *setup, struct err *err);
/* Waits for a checkpoint that is being written. Then training cannot go on, and train_free does not
 * wait for the disk. */
void train_end_writing(struct train *train);
void train_free(struct train **train);

/* Trains to the end. When `stop` becomes true, it finishes the step, rank 0 writes a checkpoint,
 * and the status is STATUS_CLOSED. When `save` becomes true on rank 0, it writes a checkpoint at
 * the end of the step, and training goes on. Rank 0 prints. With --evaluate it only validates, with
 * --profile it only measures. */
enum status train_run(struct train *train, struct signals *signals, struct err *err);

#endif
