/* Makes sure that no process outlives `run --standalone`: orphans of our daemons become our
 * children, since we are their subreaper, and are killed at the end. */
#ifndef DDPCTL_LEFTOVER_H
#define DDPCTL_LEFTOVER_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

struct leftover {
    bool had_children; /* we had children before: some of them may not be ours, so none is killed */
    uv_signal_t child_ended;
    bool (*is_ours)(void *owner, pid_t pid); /* true: it is reaped elsewhere on this loop */
    void *owner;
};

/* Becomes the subreaper. From now on orphans are reaped, so that a zombie does not look alive. */
void leftover_open(struct leftover *leftover, uv_loop_t *loop,
                   bool (*is_ours)(void *owner, pid_t pid), void *owner);
/* Reaps the processes that have ended. Also to be called after a child of ours was reaped. */
void leftover_reap(struct leftover *leftover);
/* Stops reaping, so that the loop can end. */
void leftover_stop(struct leftover *leftover);
/* After the loop: reaps, and after a moment kills what is left; returns how many were killed. */
int leftover_close(struct leftover *leftover);

#endif
