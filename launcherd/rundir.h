/* The folders of a node's state directory, and what a shim leaves in its own for launcherd to find:
 *
 *   STATE/lock                                one launcherd at a time
 *   STATE/run/<cluster>-<job>-g<generation>/  one for each shim, until it is forgotten (mode 0700)
 *     start.msg   the order, as a frame           shim.sock  where the shim listens
 *     shim.json   which process the shim is       end.msg    its last report, once it has ended
 *   STATE/logs/<cluster>-<job>/               stays
 *     shim-g<generation>.log                      the shim's own log
 *     g<generation>-rank<rank>.log                what that rank printed, to the byte
 *     g<generation>-errors/rank<rank>.json        where PyTorch's @record writes
 *
 * Every path is made of numbers and of a cluster's name ([A-Za-z0-9._-], checked by the decoder).
 */
#ifndef LAUNCHERD_RUNDIR_H
#define LAUNCHERD_RUNDIR_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/arena.h"
#include "common/msg.h"
#include "common/status.h"

/* The process of a shim, and the token that everything it starts carries. */
struct rundir_shim {
    pid_t pid;
    uint64_t start_ticks;
    char boot_id[64];
    char token[33];
};

void rundir_path(char out[PATH_MAX], const char *state_dir, const char *cluster, uint64_t job_id,
                 uint32_t generation);
void rundir_log_dir(char out[PATH_MAX], const char *state_dir, const char *cluster,
                    uint64_t job_id);
void rundir_rank_log(char out[PATH_MAX], const char *log_dir, uint32_t generation, uint32_t rank);
/* DIR/NAME, cut where it does not fit. */
void rundir_join(char out[PATH_MAX], const char *dir, const char *name);

/* Makes `path` and its parents, those with `mode`; one that is there is fine. */
enum status rundir_make(const char *path, mode_t mode, struct err *err);
/* Removes a run directory with its files. It holds no folders. */
void rundir_remove(const char *path);

/* The new content stands under `name` whole or not at all. */
enum status rundir_write(const char *dir, const char *name, const void *bytes, size_t byte_count,
                         struct err *err);
enum status rundir_write_msg(const char *dir, const char *name, struct msg *msg, struct err *err);
/* `msg` borrows from `arena`. STATUS_NOT_FOUND when there is no such file. */
enum status rundir_read_msg(const char *dir, const char *name, struct arena *arena, struct msg *msg,
                            struct err *err);
enum status rundir_write_shim(const char *dir, const struct rundir_shim *shim, struct err *err);
enum status rundir_read_shim(const char *dir, struct rundir_shim *shim, struct err *err);

#endif
