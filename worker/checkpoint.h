/* Checkpoints in a folder: rank 0 writes, any later generation goes on from the newest whole one.
 *
 * `step-<8 digits>.safetensors` has the tensors, `step-<8 digits>.json` the state with the size and
 * SHA-256 of the former. Both are written under another name, synced and renamed, the .json last:
 * it is the commit. A crash at any instant leaves the earlier checkpoints whole and at most
 * temporary files, which the next opening removes.
 *
 * Fence: whoever opened the folder last owns it; the lock file names the owner by generation, job
 * and a random number. An earlier owner that still lives somewhere (an old generation, cut off) is
 * refused at its next commit, under the same lock: STATUS_CONFLICT. So a folder is opened only when
 * the whole world of this generation stands. Blocking; one thread. */
#ifndef WORKER_CHECKPOINT_H
#define WORKER_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/safetensors.h"
#include "worker/schedule.h"

#define CHECKPOINT_TEXT_BYTES 64
#define CHECKPOINT_STEP_MAX 99999999U /* eight digits */

/* What has to be known to go on, besides the tensors. Everything here is in the .json. */
struct checkpoint_state {
    char job_id[CHECKPOINT_TEXT_BYTES]; /* empty: no launcher */
    uint32_t generation;
    /* Where training stands: `step_in_epoch` steps of `epoch` are done, `step` in all. */
    uint32_t epoch, step_in_epoch;
    uint32_t step;
    /* What has to be the same for an exact continuation. */
    char arch[CHECKPOINT_TEXT_BYTES];
    char data[CHECKPOINT_TEXT_BYTES]; /* which set: "digits", "idx", "dummy" */
    uint32_t image_count;             /* of the training set */
    uint32_t world, batch;
    uint32_t accumulation_steps; /* 1 where the file has none */
    uint64_t seed;
    bool has_momentum;                     /* the optimizer had made a step with momentum */
    char opt_level[CHECKPOINT_TEXT_BYTES]; /* "O2", "O2 bf16"; the tensors are the fp32 masters
                                              where there are some */
    float loss_scale;
    uint32_t unskipped, skipped_in_a_row; /* worker/scaler.h */
    uint32_t applied; /* optimizer steps that were not skipped: the position in a schedule, and what
                         an optimizer counts */
    struct schedule_state schedule;
    bool early_has_best; /* early stopping */
    double early_best;
    uint32_t early_count;
    char optimizer[CHECKPOINT_TEXT_BYTES]; /* "adamw", "sgd + lookahead (paper)"; "sgd" where the
                                              file has none */
};

struct checkpoint_dir;

struct checkpoint_options {
    const char *path;   /* made where it is missing */
    const char *job_id; /* "": no launcher */
    uint32_t generation;
    uint32_t keep; /* newest checkpoints kept, at least 1 */
    int64_t step;  /* where training begins: checkpoints of later steps are of another run and are
                      set aside in DIR/earlier-<n>; -1: all are */
};

/* Makes the folder, takes it for this generation, removes what a crash left. `notice` gets a
 * sentence when checkpoints were set aside, else "". Errors: STATUS_IO, STATUS_MEMORY,
 * STATUS_TOO_BIG (the path). */
enum status checkpoint_dir_open(struct checkpoint_dir **dir,
                                const struct checkpoint_options *options, struct err *notice,
                                struct err *err);
void checkpoint_dir_close(struct checkpoint_dir **dir);

/* Writes and commits state->step, then removes all but the newest `keep`. On failure the earlier
 * ones stand: STATUS_IO (disk full: training may go on), STATUS_CONFLICT (a newer generation took
 * over: stop). The tensors' values are borrowed for the call. */
enum status checkpoint_save(struct checkpoint_dir *dir, const struct checkpoint_state *state,
                            const struct safetensors_tensor *tensors, size_t tensor_count,
                            struct err *err);

/* An opened, verified checkpoint. */
struct checkpoint {
    struct checkpoint_state state;
    struct safetensors tensors;
};

/* Opens one: `path` names the .json or the .safetensors. Size and SHA-256 are verified. Errors:
 * STATUS_NOT_FOUND, STATUS_BAD_INPUT (torn, or no state of ours: the text says what), STATUS_IO.
 * Close with checkpoint_close. */
enum status checkpoint_open(struct checkpoint *checkpoint, const char *path, struct err *err);
void checkpoint_close(struct checkpoint *checkpoint);

/* Told of every checkpoint that was passed over, newest first. */
typedef void (*checkpoint_skipped)(void *user, const struct err *why);
/* The newest whole checkpoint in the folder `path` that agrees with `like` (checkpoint_check; NULL:
 * any). STATUS_NOT_FOUND: there is none at all, or all are torn. STATUS_CONFLICT: there are whole
 * ones, but of another run; err says how the newest differs. */
enum status checkpoint_open_newest(struct checkpoint *checkpoint, const char *path,
                                   const struct checkpoint_state *like, checkpoint_skipped skipped,
                                   void *user, struct err *err);
/* Whether training `like` can go on from `state`: STATUS_CONFLICT names the first difference. */
enum status checkpoint_check(const struct checkpoint_state *state,
                             const struct checkpoint_state *like, struct err *err);

/* The .json as text, owned by the caller (free); NULL: no memory. And back, strictly. */
char *checkpoint_state_print(const struct checkpoint_state *state, uint64_t tensor_bytes,
                             const char *sha256);
enum status checkpoint_state_parse(struct checkpoint_state *state, uint64_t *tensor_bytes,
                                   char *sha256, const char *what, const char *text,
                                   size_t text_bytes, struct err *err);

#endif
