/* The removal of old logs (node_expire.h), as work for a thread (file_work.h). */
#ifndef LAUNCHERD_NODE_EXPIRE_FILES_H
#define LAUNCHERD_NODE_EXPIRE_FILES_H

#include <limits.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/io/file_work.h"
#include "launcherd/process/log_folders.h"

struct expire_files {
    struct file_work work;
    void *owner; /* for the loop */
    char logs_dir[PATH_MAX], owner_id[IDENTITY_BYTES_MAX];
    struct log_folders folders;                      /* `told`: in and out */
    struct log_folder_name used[SHIMS_PER_NODE_MAX]; /* [used_count]: jobs with a shim here */
    uint32_t used_count;
    uint32_t removed; /* result */
};

/* NULL: no memory. `drop` is set. */
struct expire_files *expire_files_new(const struct rundir_logs *logs, uint64_t keep_us,
                                      void *owner);
/* `run`; ends early once nobody waits for it. */
void expire_files_remove(struct file_work *work);

/* The groups that killed starts have left (process/cgroup.h), likewise. */
struct sweep_files {
    struct file_work work;
    char cgroups[PATH_MAX];
};

struct sweep_files *sweep_files_new(const char *cgroups);
void sweep_files_remove(struct file_work *work);

#endif
