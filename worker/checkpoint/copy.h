/* Copies of checkpoints on nodes that share no disk: reading a checkpoint to send it, writing one
 * that was received, and finding out which nodes share a folder. The copy has the same bytes.
 *
 * All calls block; use from one thread. */
#ifndef WORKER_CHECKPOINT_COPY_H
#define WORKER_CHECKPOINT_COPY_H

#include "worker/checkpoint/checkpoint.h"

/* -- sending -- */

/* A committed checkpoint, opened to be sent. */
struct checkpoint_source {
    char *state; /* [state_bytes], the text of the .json; owned */
    uint32_t state_bytes;
    uint64_t tensor_bytes; /* of the .safetensors */
    int fd;
};

/* Opens the checkpoint of `step` in the folder `path`; does not verify it. Errors:
 * STATUS_NOT_FOUND, STATUS_BAD_INPUT, STATUS_IO. On success close with checkpoint_source_close. */
enum status checkpoint_source_open(struct checkpoint_source *source, const char *path,
                                   uint32_t step, struct err *err);
/* Reads bytes of the .safetensors. Errors: STATUS_BAD_INPUT (it is shorter), STATUS_IO. */
enum status checkpoint_source_read(const struct checkpoint_source *source, uint64_t offset,
                                   void *bytes, size_t byte_count, struct err *err);
void checkpoint_source_close(struct checkpoint_source *source);

/* -- receiving -- */

struct checkpoint_copy;

/* Begins to write the checkpoint of `step` into a folder, under temporary names. Errors: STATUS_IO,
 * STATUS_MEMORY. On success end with checkpoint_copy_end or checkpoint_copy_drop. */
enum status checkpoint_copy_begin(struct checkpoint_copy **copy, struct checkpoint_dir *dir,
                                  uint32_t step, struct err *err);
/* Adds bytes of the .safetensors. After an error further bytes are ignored, and
 * checkpoint_copy_end reports it. */
void checkpoint_copy_add(struct checkpoint_copy *copy, const void *bytes, size_t byte_count);
/* Checks size and SHA-256 against `state`, the text of the .json, and commits as checkpoint_save
 * does. Frees *copy. Errors, after which the earlier checkpoints are intact: STATUS_BAD_INPUT (not
 * what was sent), STATUS_IO, STATUS_CONFLICT (a newer generation owns the folder). */
enum status checkpoint_copy_end(struct checkpoint_copy **copy, const char *state,
                                size_t state_bytes, struct err *err);
/* Removes what was written. Frees *copy. */
void checkpoint_copy_drop(struct checkpoint_copy **copy);

/* -- who shares a folder -- */

/* Ranks share a folder if they find each other's token there. `meeting` is a random number that is
 * equal on all ranks and new each time. */

/* Makes the folder if missing and leaves the token of `rank`. Errors: STATUS_IO, STATUS_TOO_BIG. */
enum status checkpoint_token_leave(const char *path, uint64_t meeting, uint32_t rank,
                                   struct err *err);
bool checkpoint_token_found(const char *path, uint64_t meeting, uint32_t rank);
void checkpoint_token_remove(const char *path, uint64_t meeting, uint32_t rank);

#endif
