/* What a generation leaves in /dev/shm on this node: its files are removed where that is proved, and the others named
 * (process/shm_folder.h). The thread of log_writer.h looks, so the loop waits for nothing. Part of shim_workers. */
#ifndef LAUNCHERD_SHIM_SHM_WATCH_H
#define LAUNCHERD_SHIM_SHM_WATCH_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/limits.h"
#include "launcherd/process/shm_folder.h"

#define SHM_ENDED_MAX 4096u

struct shim_workers;

struct shm_watch {
    bool is_cleared; /* the thread does, or has */
    uint32_t ended_count;
    pid_t ended[SHM_ENDED_MAX]; /* processes of the job that this one has reaped */
    /* The rest is the thread's; `full` may be read once is_looked. */
    struct shm_seen seen;
    struct shm_left left;
    atomic_bool is_looked;
    char full[REASON_BYTES_MAX]; /* the folder is full, and of what; empty: it is not */
};

/* Before the first worker. */
void shm_watch_begin(struct shim_workers *workers);
/* A process of the job has ended. */
void shm_watch_ended(struct shim_workers *workers, pid_t pid);
/* A worker has failed: is the folder full? */
void shm_watch_failed(struct shim_workers *workers);
/* Why it may have failed; "": not known. */
const char *shm_watch_full(const struct shim_workers *workers);
/* No process is left. */
void shm_watch_end(struct shim_workers *workers);

#endif
