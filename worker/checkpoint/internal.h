/* What the files of this folder share; private to it. */
#ifndef WORKER_CHECKPOINT_INTERNAL_H
#define WORKER_CHECKPOINT_INTERNAL_H

#include "libddp/fence.h"
#include "worker/checkpoint/checkpoint.h"

enum { CHECKPOINT_PATH_BYTES = 1024, CHECKPOINT_STATE_BYTES_MAX = 1 << 16 };

#define CHECKPOINT_TOKEN_PREFIX ".node-"
#define CHECKPOINT_ID_BYTES 17         /* 16 hex digits */
#define CHECKPOINT_WRITER "ddp-worker" /* in the metadata of the tensors' file: it is ours */

struct checkpoint_dir {
    char path[CHECKPOINT_PATH_BYTES - 64]; /* leaves room for a file name */
    uint32_t keep;
    struct fence fence; /* who owns it */
    char id
        [CHECKPOINT_ID_BYTES]; /* this owner's random number, in the names of its temporary files */
    char earlier[CHECKPOINT_PATH_BYTES - 48]; /* where this owner moves things; "": not made yet */
};

/* The files of one checkpoint, and their temporary names, which no other process uses. */
struct checkpoint_paths {
    char tensors[CHECKPOINT_PATH_BYTES], tensors_temp[CHECKPOINT_PATH_BYTES];
    char state[CHECKPOINT_PATH_BYTES], state_temp[CHECKPOINT_PATH_BYTES];
};

/* -- names.c -- */

/* "DIR/step-00000012.json" for the ending ".json"; `out` [CHECKPOINT_PATH_BYTES]. */
void checkpoint_file_path(char *out, const char *dir, uint32_t step, const char *ending);
/* "step-00000012.json" with the ending ".json" is step 12. false: not the name of a checkpoint. */
bool checkpoint_parse_name(const char *name, const char *ending, uint32_t *step);
/* Without the temporary names. */
void checkpoint_make_paths(struct checkpoint_paths *paths, const char *dir, uint32_t step);
void checkpoint_make_temp_paths(struct checkpoint_paths *paths, const struct checkpoint_dir *dir,
                                uint32_t step);
/* "PATH.<id>.tmp"; `out` [CHECKPOINT_PATH_BYTES]. */
void checkpoint_temp_path(char *out, const struct checkpoint_dir *dir, const char *path);
/* The .json of a step; `out` [CHECKPOINT_PATH_BYTES]. */
void checkpoint_state_path(char *out, const char *dir, uint32_t step);
/* The steps that have a file with `ending`, newest first; owned by the caller. Errors:
 * STATUS_NOT_FOUND (no such folder), STATUS_IO, STATUS_MEMORY. */
enum status checkpoint_list_steps(const char *path, const char *ending, uint32_t **steps,
                                  size_t *count, struct err *err);

/* -- dir.c -- */

/* mkdir -p; `path` is shorter than a struct checkpoint_dir's. */
enum status checkpoint_make_dirs(const char *path, struct err *err);
/* Renames both temporary files of `step`, then removes all checkpoints except the best and the
 * newest `keep`. After an error (those of checkpoint_save) the temporary files are removed. */
enum status checkpoint_commit(struct checkpoint_dir *dir, const struct checkpoint_paths *paths,
                              uint32_t step, struct err *err);
/* Removes the checkpoints that the next commit would remove. False: there are none; the newest
 * always stays. */
bool checkpoint_make_room(struct checkpoint_dir *dir);
void checkpoint_remove_temps(const struct checkpoint_paths *paths);
/* Makes both temporary names free. Errors: STATUS_IO. */
enum status checkpoint_clear_temps(struct checkpoint_dir *dir, const struct checkpoint_paths *paths,
                                   struct err *err);

/* -- own.c -- */

/* Whether the .json and, if they are there, the tensors of `step` are known to be ours. */
bool checkpoint_step_is_ours(const char *dir, uint32_t step);
/* Removes what is at `path` if it is known to be ours. */
void checkpoint_remove_ours(const char *path);
/* Call before a rename to `path`: what is there and is not known to be ours is moved to DIR/earlier-<n>,
 * with a log line. Errors: STATUS_IO. */
enum status checkpoint_make_way(struct checkpoint_dir *dir, const char *path, struct err *err);
/* The same for a name at which a new file is made: afterwards it is free. */
enum status checkpoint_make_way_for_temp(struct checkpoint_dir *dir, const char *path,
                                         struct err *err);
/* Makes DIR/earlier-<n>. Errors: STATUS_IO. */
enum status checkpoint_make_earlier(struct checkpoint_dir *dir, struct err *err);
/* Removes what a killed process of ours has left. What has such a name and is not ours is moved to
 * DIR/earlier-<n>. Errors: STATUS_IO. */
enum status checkpoint_sweep(struct checkpoint_dir *dir, struct err *err);

/* -- mark.c -- */

/* Resolves `path`: a checkpoint's own path, or "DIR/best.json" to the checkpoint that it names.
 * Errors: STATUS_NOT_FOUND, STATUS_BAD_INPUT, STATUS_IO, STATUS_TOO_BIG. */
enum status checkpoint_resolve(char out[CHECKPOINT_PATH_BYTES], const char *path, struct err *err);
/* Marks the newest; -1: none. A failure is no error, since no reader needs the mark. */
void checkpoint_latest_mark(struct checkpoint_dir *dir, int64_t step);
/* Moves the mark of the best along with the checkpoint that it names. */
void checkpoint_best_move(const char *from, const char *to);

/* -- checkpoint.c -- */

/* Whether the tensors at `path` have that size and SHA-256. Errors: STATUS_BAD_INPUT,
 * STATUS_NOT_FOUND, STATUS_IO. */
enum status checkpoint_check_tensors(const char *path, uint64_t bytes, const char *sha256,
                                     struct err *err);
/* The same where size and SHA-256 are known. */
enum status checkpoint_compare_tensors(const char *path, uint64_t bytes, const char *sha256,
                                       uint64_t found_bytes, const char *found, struct err *err);

/* -- state.c -- */

/* An item of JSON that is read back as the same double; NULL: no memory. */
struct cJSON *checkpoint_exact_number(double number);

/* Reads the .json `path`. `sha256`: [65]. */
enum status checkpoint_read_state(const char *path, struct checkpoint_state *state, uint64_t *bytes,
                                  char *sha256, struct err *err);

#endif
