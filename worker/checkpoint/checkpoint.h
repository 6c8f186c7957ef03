/* Checkpoints in a folder: rank 0 writes them, and a later generation resumes from the newest complete one. Other
 * public headers: writer.h (a thread that writes them during training), safetensors.h (the format of the tensors),
 * copy.h (checkpoints on several nodes that share no disk).
 *
 * Files: `step-<8 digits>.safetensors` has the tensors. `step-<8 digits>.json` has the state, the size and SHA-256
 * of the tensors' file, and a SHA-256 of the state itself. Both are written under a temporary name, synced and
 * renamed. The .json comes last and is the commit. A crash leaves the earlier checkpoints intact and at most
 * temporary files, which the next checkpoint_dir_open() removes.
 *
 * The folder is the user's. What is there and is not known to be ours is never removed, replaced or written
 * through; where it is in the way, it is moved to DIR/earlier-<n>, with a log line: own.c.
 *
 * Fence: the last process that opened the folder owns it. The lock file names the owner by generation, job and a
 * random number. An earlier owner, such as an old generation that lost its connection, is refused at its next
 * commit with STATUS_CONFLICT. One lock guards owner and commit. So open a folder only when all ranks of this
 * generation are connected. A living owner of another job is not replaced; it holds a second lock as long as it
 * lives.
 *
 * All calls block; only one thread at a time may use a folder. */
#ifndef WORKER_CHECKPOINT_CHECKPOINT_H
#define WORKER_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/data/sampler.h"
#include "worker/net/schedule.h"

#define CHECKPOINT_TEXT_BYTES 64
#define CHECKPOINT_STEP_MAX 99999999U /* eight digits */
#define CHECKPOINT_PARTS_MAX 64U      /* changes of the world within one epoch */

/* What resuming needs besides the tensors; the content of the .json. */
struct checkpoint_state {
    char job_id[CHECKPOINT_TEXT_BYTES]; /* empty: no launcher */
    uint32_t generation;
    /* Progress: `step_in_epoch` steps of epoch `epoch` are done, `step` steps in all. */
    uint32_t epoch, step_in_epoch;
    uint32_t step;
    /* World and batch size, which may change. `parts`: the first steps of this epoch if they were
     * done with others, in order of time. */
    uint32_t world, batch;
    uint32_t accumulation_steps; /* 1 where the file has none */
    struct sampler_part parts[CHECKPOINT_PARTS_MAX];
    uint32_t part_count;
    /* Must be equal to resume exactly: */
    char arch[CHECKPOINT_TEXT_BYTES];
    char data[CHECKPOINT_TEXT_BYTES]; /* the set: "digits", "idx", "folder" */
    uint64_t data_hash;               /* of the training set: struct source; 0: unknown */
    /* Hashes of what is done to images: to all of them, and to training images alone. A difference
     * is reported, but allowed; 0: unknown. */
    uint64_t image_rules, training_rules;
    uint32_t image_count; /* in the training set */
    uint64_t seed;
    bool has_momentum; /* the momentum buffers hold values */
    /* "O2", "O2 bf16". The tensors are the fp32 masters where the level has masters. */
    char opt_level[CHECKPOINT_TEXT_BYTES];
    float loss_scale;
    uint32_t unskipped, skipped_in_a_row; /* worker/net/scaler.h */
    uint32_t
        applied; /* optimizer steps that were not skipped: schedules and optimizers count these */
    struct schedule_state schedule;
    /* The schedule, and the epochs that it goes over; "", 0: the file has none. */
    char schedule_kind[CHECKPOINT_TEXT_BYTES];
    uint32_t schedule_epochs;
    bool early_has_best; /* early stopping */
    double early_best;
    uint32_t early_count;
    uint64_t base_images; /* of a step of the first generation, for which --lr is; 0: unknown */
    uint32_t threads;     /* of the CPU a rank; 0: none, or the file has none */
    /* "adamw", "sgd + lookahead (paper)"; "sgd" where the file has none. */
    char optimizer[CHECKPOINT_TEXT_BYTES];
    /* Not in the file: the file is from a version that stored no checksum of the state. */
    bool is_unchecked;
};

struct checkpoint_dir;

struct checkpoint_options {
    const char *path;    /* created if missing */
    const char *job_id;  /* "": no launcher */
    const char *cluster; /* of the server that gave the job's id; "": no launcher */
    bool takes_over;     /* also takes the folder from a living owner of another job */
    uint32_t generation;
    uint32_t keep; /* number of newest checkpoints to keep, at least 1 */
    /* The step at which training starts. Checkpoints of later steps are from another run: they are
     * moved to DIR/earlier-<n>. -1: all are moved. */
    int64_t step;
    bool only_job; /* checkpoints of other jobs are moved there too */
};

/* Creates the folder, makes this generation its owner, removes temporary files of a crash. `notice`
 * gets a sentence if checkpoints were moved, else "". Errors: STATUS_BUSY (an owner of another job lives),
 * STATUS_BAD_INPUT (its .lock is not ours), STATUS_IO, STATUS_MEMORY, STATUS_TOO_BIG (the path). */
enum status checkpoint_dir_open(struct checkpoint_dir **dir,
                                const struct checkpoint_options *options, struct err *notice,
                                struct err *err);
void checkpoint_dir_close(struct checkpoint_dir **dir);

/* Writes and commits the checkpoint of state->step, then removes all but the newest `keep`. The
 * values of the tensors are borrowed for the call. Errors, after which the earlier checkpoints are
 * intact: STATUS_IO (disk full; training may continue), STATUS_CONFLICT (a newer generation owns
 * the folder; training must stop), STATUS_BAD_INPUT (a value is not finite, or a negative variance;
 * names it). */
enum status checkpoint_save(struct checkpoint_dir *dir, const struct checkpoint_state *state,
                            const struct safetensors_tensor *tensors, size_t tensor_count,
                            struct err *err);

/* The best checkpoint of a folder, which is kept beside the newest `keep`: named by `best.json`, and
 * best.safetensors is a symbolic link to its weights. `latest.json` and latest.safetensors are the same
 * for the newest. */
struct checkpoint_best {
    uint32_t step;
    char metric[CHECKPOINT_TEXT_BYTES]; /* "val_acc1" */
    double value;
};

/* Makes the checkpoint of best->step, which is in the folder, the best; whole or not at all. Errors:
 * STATUS_NOT_FOUND (it is not there), STATUS_IO, STATUS_CONFLICT (a newer generation owns the folder). */
enum status checkpoint_best_mark(struct checkpoint_dir *dir, const struct checkpoint_best *best,
                                 struct err *err);
/* Reads the mark of the best. Errors: STATUS_NOT_FOUND (no mark, or its checkpoint is gone),
 * STATUS_BAD_INPUT, STATUS_IO. */
enum status checkpoint_best_read(const char *dir, struct checkpoint_best *best, struct err *err);

/* An opened, verified checkpoint. */
struct checkpoint {
    struct checkpoint_state state;
    struct safetensors tensors;
};

/* Opens a checkpoint by the path of its .json or its .safetensors, or of best.json or latest.json; verifies size and SHA-256.
 * Errors: STATUS_NOT_FOUND, STATUS_BAD_INPUT (incomplete, or not a checkpoint of ours), STATUS_IO.
 * Close with checkpoint_close. */
enum status checkpoint_open(struct checkpoint *checkpoint, const char *path, struct err *err);
/* The same for the checkpoint of `step` in the folder `path`. */
enum status checkpoint_open_step(struct checkpoint *checkpoint, const char *path, uint32_t step,
                                 struct err *err);
void checkpoint_close(struct checkpoint *checkpoint);

/* Which checkpoints of a folder are acceptable. */
struct checkpoint_choice {
    const struct checkpoint_state *like; /* checkpoint_check() must succeed; NULL: any run */
    const char *job_id;                  /* only of this job; NULL: of any */
    /* Called for every checkpoint that was skipped, newest first. */
    void (*skipped)(void *user, const struct err *why);
    void *user;
};
/* Opens the newest complete and acceptable checkpoint in the folder `path`. Errors:
 * STATUS_NOT_FOUND (no checkpoint or no folder), STATUS_BAD_INPUT (there are some, and all are
 * damaged), STATUS_CONFLICT (all complete ones are from other runs; the text says how the newest
 * differs). */
enum status checkpoint_open_newest(struct checkpoint *checkpoint, const char *path,
                                   const struct checkpoint_choice *choice, struct err *err);
/* Whether training with `like` can resume from `state`. Errors: STATUS_CONFLICT (names the first
 * difference). */
enum status checkpoint_check(const struct checkpoint_state *state,
                             const struct checkpoint_state *like, struct err *err);

/* The .json as text, owned by the caller (free); NULL when out of memory. */
char *checkpoint_state_print(const struct checkpoint_state *state, uint64_t tensor_bytes,
                             const char *sha256);
/* Parses and checks a .json. Errors: STATUS_BAD_INPUT. */
enum status checkpoint_state_parse(struct checkpoint_state *state, uint64_t *tensor_bytes,
                                   char *sha256, const char *what, const char *text,
                                   size_t text_bytes, struct err *err);

#endif
