/* The warm workers (warm_main.h) of a shim, which gives them their ranks. If one has died, or
 * cannot be used, another process is started for its rank. */
#ifndef LAUNCHERD_SHIM_WARM_WORKERS_H
#define LAUNCHERD_SHIM_WARM_WORKERS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/limits.h"
#include "launcherd/process/proc.h"

/* In the environment of the shim: "TOKEN PID:FD:ANSWERS PID:FD:ANSWERS", by local rank. */
#define WARM_VARIABLE "DDP_WARM_WORKERS"
/* In the environment of a warm worker: the socket on which it waits. */
#define WARM_FD_VARIABLE "DDP_WARM_FD"
/* What it writes there (worker/warm.h): WARM_ANSWERS when it waits, WARM_HAS_TAKEN when it has
 * taken its rank. If its first byte is another one, it need not write WARM_HAS_TAKEN. */
#define WARM_ANSWERS 'a'
#define WARM_HAS_TAKEN 't'

struct worker_ends; /* launcherd/shim/worker_ends.h */

struct warm_worker {
    pid_t pid;    /* 0: none, or no longer warm */
    int fd;       /* our end of its socket */
    bool answers; /* it writes WARM_HAS_TAKEN */
};

struct warm_workers {
    uint32_t count;
    char token[PROC_TOKEN_CHARS + 1]; /* the token in their environment; empty: there are none */
    char cgroup[PATH_MAX];            /* of them and of all that they started; empty: none */
    struct warm_worker items[SLOTS_PER_NODE_MAX];
};

/* Reads WARM_VARIABLE, and removes it from the environment. Call before any thread is started. */
void warm_workers_read(struct warm_workers *warm);
/* Sets WARM_VARIABLE for the program that is executed next, and keeps the sockets open for it.
 * False: it failed, errno. */
bool warm_workers_write(const struct warm_workers *warm);

/* Gives a warm worker this local rank: sends it the descriptors, which replace its own, and the
 * whole environment. `null_fd`: its stdin, if `ends` has none. `cgroup`: it is moved there; NULL:
 * it stays where it is. True: it runs as this rank from now on, as `*pid`. It writes WARM_HAS_TAKEN
 * to `*answer_fd`, which the caller closes; -1: it sends no answer. False: there is none that can
 * be used. If there was one, it is killed. */
bool warm_workers_give(struct warm_workers *warm, uint32_t local, const struct worker_ends *ends,
                       int null_fd, char *const *envp, const char *cgroup, pid_t *pid,
                       int *answer_fd);
/* Kills the warm workers without a rank. They must be reaped like any child. */
void warm_workers_drop(struct warm_workers *warm);

#endif
