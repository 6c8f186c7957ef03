/* What a shim's main thread is about to do that may not come back, as the name of its process: launcherd reads that
 * without asking the shim or touching a disk, and says it when it has to kill the shim. */
#ifndef LAUNCHERD_PROCESS_DOING_H
#define LAUNCHERD_PROCESS_DOING_H

#include <stdint.h>
#include <sys/types.h>

#define DOING_READ_BYTES 128u

enum doing {
    DOING_NOTHING, /* its name is launcherd's */
    DOING_READ,    /* its order, from its run directory */
    DOING_WRITE,   /* shim.sock and shim.json, in its run directory */
    DOING_STORE, /* the start of the job's store: it waits until the process runs launcherd's program */
    DOING_START /* the start of a rank: it waits until the process runs its program */
};

/* Of the calling thread, which must be the main one. `rank`: for DOING_START. */
void doing_set(enum doing doing, uint32_t rank);
/* " while it ...", for the end of a sentence; empty: nothing of these, or the process cannot be read. */
void doing_read(pid_t pid, char text[DOING_READ_BYTES]);

#endif
