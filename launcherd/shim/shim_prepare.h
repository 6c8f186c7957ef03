/* What a shim does before it is ready, away from its loop: a child checks that the job can run here (preflight.h), and a
 * thread makes what the ranks need (rank_files.h). A disk that does not answer fails the start by its name. Part of the edge of the
 * shim. */
#ifndef LAUNCHERD_SHIM_SHIM_PREPARE_H
#define LAUNCHERD_SHIM_SHIM_PREPARE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "launcherd/process/cgroup.h"
#include "launcherd/shim/preflight.h"
#include "launcherd/shim/shim_workers.h"

struct rank_files;

struct shim_prepare {
    struct shim_workers *workers; /* the owner sets this and the next two */
    void *owner;
    /* Once, from the loop or within shim_prepare_begin. `code` 0: the job can run here; else `text` says why not. */
    void (*on_done)(void *owner, int32_t code, const char *text);
    struct cgroup_limits limits;
    struct preflight preflight;
    struct rank_files *files; /* NULL: none are being made */
    bool has_begun, is_checked, is_over;
    int32_t code;
    char text[256];
    char stage_dir[PATH_MAX], stage_files[PATH_MAX]; /* empty: no staged directory */
};

/* A staged working directory is unpacked into the folder of the job's logs, see rundir.h. Call it before the workers get
 * `start`. */
void shim_prepare_place(struct shim_prepare *prepare, struct msg_start *start, const char *log_dir);
/* Call once, when the workers are initialized, and before another thread of this process runs: it forks. `policy` is borrowed
 * for the call, policy->node until on_done. */
void shim_prepare_begin(struct shim_prepare *prepare, const struct account_policy *policy);
/* on_done is not called any more. A second call does nothing. */
void shim_prepare_close(struct shim_prepare *prepare);

#endif
