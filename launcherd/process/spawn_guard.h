/* Watches a start from another thread: a child that is stopped before it has run its program would hold the thread
 * that waits for it for ever. It is killed. One that hangs on a disk is not: a slow disk may still answer. */
#ifndef LAUNCHERD_PROCESS_SPAWN_GUARD_H
#define LAUNCHERD_PROCESS_SPAWN_GUARD_H

#include <pthread.h>
#include <stdbool.h>

#include "launcherd/process/spawn.h"

#define SPAWN_GUARD_MS 10000u

struct spawn_guard {
    struct spawn_watch watch; /* for spawn_order */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_running, is_over;
    pid_t killed; /* 0: nothing was */
};

/* Before spawn_process, whose order has `watch`. Without a thread to spare nothing is watched. */
void spawn_guard_begin(struct spawn_guard *guard);
/* After it. STATUS_SYSTEM: the child was killed, and `err` says why; else `status`. What spawn_process leaves of a
 * start that failed is reaped. */
enum status spawn_guard_end(struct spawn_guard *guard, enum status status, struct err *err);

#endif
