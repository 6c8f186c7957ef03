/* The temporary folder of `run --standalone`, and removal of old ones. Each folder has a lock that
 * is held as long as its ddpctl lives. So the next run can remove the folder of a killed one, and
 * nothing else: only folders of this user and this machine with our name and lock file, whose lock
 * is free and names this very folder (a copy is the user's), and whose daemons and shims have ended. What else is in
 * one stays, with the lock file. */
#ifndef DDPCTL_SCRATCH_H
#define DDPCTL_SCRATCH_H

#include <limits.h>
#include <stdint.h>

#include "common/status.h"

#define SCRATCH_PATH_BYTES (PATH_MAX - 64)

struct scratch {
    char dir[SCRATCH_PATH_BYTES]; /* empty: there is no folder */
    int lock_fd;
};

struct scratch_swept {
    uint32_t removed_count;
    uint32_t kept_count; /* may be of killed runs, and stay */
    char kept[512];      /* which one stays and why, of the first; empty: none */
};

/* Makes one under TMPDIR or /tmp. STATUS_IO. */
enum status scratch_make(struct scratch *scratch, struct err *err);
/* Removes it with everything in it. Does nothing if there is none. */
void scratch_remove(struct scratch *scratch);
/* Removes the folders that killed runs have left. */
void scratch_sweep(struct scratch_swept *swept);

#endif
