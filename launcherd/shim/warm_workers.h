/* Workers that were started before there was an order for them (warm_main.h), in the shim that gives them
 * their places. One that has died meanwhile, or that cannot be used, is started as any other. */
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
/* What it writes there (worker/warm.h): it waits, and will answer; it has taken its place. */
#define WARM_ANSWERS 'a'
#define WARM_HAS_TAKEN 't'

struct worker_ends; /* launcherd/shim/worker_ends.h */

struct warm_worker {
    pid_t pid;    /* 0: none, or given away */
    int fd;       /* of its socket */
    bool answers; /* it says when it has taken its place */
};

struct warm_workers {
    uint32_t count;
    char token[PROC_TOKEN_CHARS + 1]; /* that is in their environment; empty: there are none */
    char cgroup[PATH_MAX]; /* that they are in, with all that they started; empty: none */
    struct warm_worker items[SLOTS_PER_NODE_MAX];
};

/* Takes WARM_VARIABLE out of the environment. */
void warm_workers_read(struct warm_workers *warm);
/* Puts it there, for the program that is executed next; their sockets stay open for it. */
bool warm_workers_write(const struct warm_workers *warm);

/* Gives a worker its place: the descriptors, which it takes in the place of its own, and the whole environment.
 * `cgroup`: it is moved there, where it is not yet; NULL: it stays. True: it runs as this local rank from now on, as `*pid`; `*answer_fd`, of the caller from then
 * on, gets WARM_HAS_TAKEN; -1: it does not answer. False: there
 * is none that can be used, and none is left that was started for it. */
bool warm_workers_give(struct warm_workers *warm, uint32_t local, const struct worker_ends *ends,
                       int null_fd, char *const *envp, const char *cgroup, pid_t *pid,
                       int *answer_fd);
/* Kills those that have no place. They are reaped as any child. */
void warm_workers_drop(struct warm_workers *warm);

#endif
