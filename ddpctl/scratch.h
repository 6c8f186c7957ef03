/* The temporary folder of `run --standalone`, and what is left of earlier ones. A folder has a lock that is
 * held as long as its ddpctl lives; so the next run removes what a killed one has left, and nothing else:
 * only folders of this user with our name and our lock file, whose lock is free and whose shims have ended. */
#ifndef DDPCTL_SCRATCH_H
#define DDPCTL_SCRATCH_H

#include <limits.h>
#include <stdint.h>

#include "common/status.h"

#define SCRATCH_PATH_BYTES (PATH_MAX - 64)

struct scratch {
    char dir[SCRATCH_PATH_BYTES]; /* empty: none was made */
    int lock_fd;
};

/* Makes one under TMPDIR or /tmp. STATUS_IO. */
enum status scratch_make(struct scratch *scratch, struct err *err);
/* With all that is in it. Does nothing where there is none. */
void scratch_remove(struct scratch *scratch);
/* Removes the folders that killed runs have left; returns how many. */
uint32_t scratch_sweep(void);

#endif
