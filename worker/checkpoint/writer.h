/* A thread that writes checkpoints during training, one at a time, from a copy of the tensors that must not change
 * until the outcome has been taken.
 *
 *     checkpoint_writer_begin(writer, &state, tensors, count);
 *     ... training goes on ...
 *     if (checkpoint_writer_take(writer, false, &why)) ... committed, or why not ...
 *
 * Between begin and take the folder belongs to the thread. */
#ifndef WORKER_CHECKPOINT_WRITER_H
#define WORKER_CHECKPOINT_WRITER_H

#include "worker/checkpoint/checkpoint.h"

struct checkpoint_writer;

/* `dir` is borrowed until checkpoint_writer_free. Errors: STATUS_MEMORY, STATUS_SYSTEM. */
enum status checkpoint_writer_new(struct checkpoint_writer **writer, struct checkpoint_dir *dir,
                                  struct err *err);
/* Waits for a checkpoint that is being written. */
void checkpoint_writer_free(struct checkpoint_writer **writer);

/* Begins checkpoint_save() of this state, which is copied; the tensors and their values are borrowed
 * until the outcome was taken. The outcome of the one before must have been taken. */
void checkpoint_writer_begin(struct checkpoint_writer *writer, const struct checkpoint_state *state,
                             const struct safetensors_tensor *tensors, size_t tensor_count);
/* Takes the outcome of the checkpoint that was begun: `outcome` is that of checkpoint_save, its
 * status STATUS_OK when it is committed. False, only without `wait`: it is being written. */
bool checkpoint_writer_take(struct checkpoint_writer *writer, bool wait, struct err *outcome);

#endif
