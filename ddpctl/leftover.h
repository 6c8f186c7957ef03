/* Makes sure that no process outlives `run --standalone`. We are the subreaper of our daemons, so
 * their orphans become our children, and are killed at the end. */
#ifndef DDPCTL_LEFTOVER_H
#define DDPCTL_LEFTOVER_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

struct leftover {
    bool had_children; /* we had other children before, which may not be ours: kill none */
    uv_signal_t child_ended;
    bool (*is_ours)(void *owner, pid_t pid); /* true: it is reaped elsewhere on this loop */
    void *owner;
};

/* Becomes the subreaper. From now on orphans are reaped, so that a zombie does not look alive. */
void leftover_open(struct leftover *leftover, uv_loop_t *loop,
                   bool (*is_ours)(void *owner, pid_t pid), void *owner);
/* Reaps the processes that have ended. Also call it after a child of ours was reaped. */
void leftover_reap(struct leftover *leftover);
/* Stops reaping, so that the loop can end. */
void leftover_stop(struct leftover *leftover);
/* After the loop: reaps, waits a moment, and kills what is left. Returns how many were killed. */
int leftover_close(struct leftover *leftover);

#endif
