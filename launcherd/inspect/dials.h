/* Whether a rank waits for a store of PyTorch's that nobody serves. Its client prints nothing, and tries to
 * connect for half an hour. */
#ifndef LAUNCHERD_INSPECT_DIALS_H
#define LAUNCHERD_INSPECT_DIALS_H

#include <stdbool.h>
#include <sys/types.h>

#define DIALS_ADDRESS_BYTES 64

struct dial {
    pid_t pid;                    /* the rank's process, or a descendant */
    char to[DIALS_ADDRESS_BYTES]; /* "10.0.0.2:29500", which does not answer; empty: it refuses */
};

/* Finds a process, `pid` or a descendant, that has PyTorch loaded and a TCP socket which was refused or
 * gets no answer, and that has no connection. A rank which has lost a peer still has others. */
bool dials_find(pid_t pid, struct dial *dial);

#endif
