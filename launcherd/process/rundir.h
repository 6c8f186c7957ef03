/* The state directory of a node, and the files in it that a shim and launcherd share:
 *
 *   STATE/lock                                  locked by the one launcherd that uses it
 *   STATE/key, key-of                           the node's key; that there was one (node/key_mark.h)
 *   STATE/seen                                  the newest job of each cluster (node/seen_files.h)
 *   STATE/slots.json                            the record of the slots (node/slots_file.h)
 *   STATE/state-id.json                         which state directory this is (node/state_id.h)
 *   STATE/run/<cluster>-<job>-g<generation>/    one for each shim, until `forget` (mode 0700)
 *     start.msg                                 the start order, as a frame
 *     shim.sock                                 the socket on which the shim listens
 *     store.sock                                the socket of the job's store (shim/store_child.h)
 *     shim.json                                 the process of the shim
 *     stage.tar                                 a link to the archive of a staged working directory
 *     end.msg                                   its last report, once it has ended
 *   STATE/parts/                                the record of what is in run (part_record.h)
 *   STATE/warm/<cluster>-<job>/                 for processes that wait for a start order (shim/warm_main.h)
 *     shim.json                                 the process that keeps them. A start order moves it to the run
 *                                               directory: that process becomes the shim
 *   STATE/logs/<cluster>-<job>-<submitted_ms>/  stays; with --log-dir LOGS/<cluster>-<job>-<submitted_ms>.<owner>/, since
 *                                               several launcherds may have the same LOGS (log_place.h)
 *     shim-g<generation>.log                    the log of the shim
 *     warm.log                                  the log of processes that waited for a start order (shim/warm_main.h)
 *     g<generation>-rank<rank>.log              the output of that rank, byte for byte
 *     g<generation>-errors/                     owned by the job's user; its ranks write there:
 *       rank<rank>.json                         PyTorch's @record
 *       rank<rank>.metrics.jsonl                DDP_METRICS: a JSON object a line
 *     stage/files/                              a staged working directory (common/stage.h), owned by the job's user
 *   STATE/stage/HASH.tar                        the archives of staged working directories
 *
 * Only these names are ever removed: a new one must be added in rundir.c and log_folders.c, or its folder
 * stays.
 *
 * Paths are made of numbers and the name of a cluster ([A-Za-z0-9._-], checked by the decoder). */
#ifndef LAUNCHERD_PROCESS_RUNDIR_H
#define LAUNCHERD_PROCESS_RUNDIR_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/arena.h"
#include "common/limits.h"
#include "common/msg.h"
#include "common/status.h"

/* A shim's process, and the token in the environment of all its descendants. */
struct rundir_shim {
    pid_t pid;
    uint64_t start_ticks;
    char boot_id[64];
    char machine_id[IDENTITY_BYTES_MAX]; /* empty: not known */
    char pid_ns[32]; /* the pid namespace in which it has that pid; empty: not known */
    char token[33];
    char cgroup[PATH_MAX]; /* the folder of its workers' cgroup; empty: none */
};

void rundir_path(char out[PATH_MAX], const char *state_dir, const char *cluster, uint64_t job_id,
                 uint32_t generation);
void rundir_warm_path(char out[PATH_MAX], const char *state_dir, const char *cluster,
                      uint64_t job_id);
/* The folder of a node's logs. */
struct rundir_logs {
    const char *dir; /* STATE/logs, or launcherd's --log-dir */
    const char *
        owner; /* the id of the state directory, of which RUNDIR_OWNER_CHARS count; "": only we use `dir` */
};
#define RUNDIR_OWNER_CHARS 16
/* `submitted_ms`: of the job; 0: a server of release 0.1.0 did not say it (log_place.h). */
void rundir_log_dir(char out[PATH_MAX], const struct rundir_logs *logs, const char *cluster,
                    uint64_t job_id, int64_t submitted_ms);
void rundir_rank_log(char out[PATH_MAX], const char *log_dir, uint32_t generation, uint32_t rank);
/* The folder of that generation where the ranks may write, and the files of a rank in it: metrics,
 * error. */
void rundir_rank_dir(char out[PATH_MAX], const char *log_dir, uint32_t generation);
void rundir_rank_metrics(char out[PATH_MAX], const char *rank_dir, uint32_t rank);
void rundir_rank_error(char out[PATH_MAX], const char *rank_dir, uint32_t rank);
/* DIR/NAME, truncated if it does not fit. */
void rundir_join(char out[PATH_MAX], const char *dir, const char *name);

/* All of these go by descriptors, follow no link in place of a folder of ours, and touch nothing that
 * is not ours (common/io/own_path.h). */

/* The state directory is the folder `fd`, which this process has locked. From now on nothing is made below `state_dir`
 * unless that is its path: a moved directory, or one whose disk was unmounted, is not made anew in another place, where
 * the next launcherd would not find what runs. Call once, before other threads touch it; a shim does not. */
void rundir_state_opened(const char *state_dir, int fd);
/* Whether `path` is below no such directory, or the directory is where it was. STATUS_CONFLICT: it is not. For threads. */
enum status rundir_state_check(const char *path, struct err *err);
/* Makes `path` and its parents with `mode`. Existing ones are not changed. An existing `path` must be
 * ours: STATUS_REFUSED. */
enum status rundir_make(const char *path, mode_t mode, struct err *err);
/* The same for a run directory or one of warm processes: its parent must be ours, too. */
enum status rundir_make_dir(const char *path, struct err *err);
/* Makes a folder in one of ours and gives it to that user. NULL: it stays ours. */
enum status rundir_make_for(const char *path, const uid_t *uid, const gid_t *gid, struct err *err);
/* Whether it is the name of a run directory, or of one of warm processes. */
bool rundir_is_name(const char *name);
bool rundir_is_warm_name(const char *name);
/* The parts of the name of a run directory. False: it is none. */
bool rundir_parse_name(const char *name, char cluster[33], uint64_t *job_id, uint32_t *generation);
/* STATUS_OK: the directory is ours. STATUS_REFUSED: it is not, and `err` says why. */
enum status rundir_check(const char *path, struct err *err);
/* Removes the files that we make in a run directory, or in one of warm processes, the directory if
 * nothing else is in it, and its part from the record. Else a log line names what is left alone. It works without a free descriptor
 * (own_reserve). */
void rundir_remove(const char *path);

/* Links the staged archive as `stage.tar` into the run directory, where it stays as long as the
 * shim needs it. STATUS_OK, without a link, for other working directories. */
enum status rundir_link_stage(const char *dir, const char *state_dir, const char *cwd,
                              struct err *err);
/* Moves shim.json to another directory, with one rename. */
bool rundir_move_shim(const char *from, const char *to);
/* Removes the folder `name` of the folder `parent_fd` (or AT_FDCWD) with everything in it that is ours
 * or of the folder's owner, see common/io/own_tree.h. */
void rundir_remove_all(int parent_fd, const char *name);

/* Replaces the file by a rename: it has either the old or the new content. */
enum status rundir_write(const char *dir, const char *name, const void *bytes, size_t byte_count,
                         struct err *err);
/* The bytes of DIR/NAME, from `arena`. STATUS_NOT_FOUND when there is no such file. */
enum status rundir_read(const char *dir, const char *name, struct arena *arena, char **bytes,
                        size_t *byte_count, struct err *err);
/* The same for a file of the state directory itself. */
enum status rundir_write_state(const char *state_dir, const char *name, const void *bytes,
                               size_t byte_count, struct err *err);
enum status rundir_read_state(const char *state_dir, const char *name, struct arena *arena,
                              char **bytes, size_t *byte_count, struct err *err);
enum status rundir_write_msg(const char *dir, const char *name, struct msg *msg, struct err *err);
/* `msg` borrows from `arena`. STATUS_NOT_FOUND when there is no such file. */
enum status rundir_read_msg(const char *dir, const char *name, struct arena *arena, struct msg *msg,
                            struct err *err);
enum status rundir_write_shim(const char *dir, const struct rundir_shim *shim, struct err *err);
enum status rundir_read_shim(const char *dir, struct rundir_shim *shim, struct err *err);
/* The same from DIR/NAME, where the last `ours` folders are ours. */
enum status rundir_read_shim_of(const char *dir, const char *name, uint32_t ours,
                                struct rundir_shim *shim, struct err *err);

#endif
