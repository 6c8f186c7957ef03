/* That nothing outlives `run --standalone`: orphans of our daemons come back to us (we are their
 * subreaper); whatever is left at the end is killed. */
#ifndef DDPCTL_LEFTOVER_H
#define DDPCTL_LEFTOVER_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

struct leftover {
    bool had_children; /* before we began: then strangers are among our children, and nothing is
                          killed */
    uv_signal_t child_ended;
    bool (*is_ours)(void *owner, pid_t pid); /* somebody else on the loop reaps it */
    void *owner;
};

/* Become the subreaper, and reap orphans that end meanwhile, so that none looks as if it lived. */
void leftover_open(struct leftover *leftover, uv_loop_t *loop,
                   bool (*is_ours)(void *owner, pid_t pid), void *owner);
/* Reap what has ended; also to be called when one of ours was reaped. */
void leftover_reap(struct leftover *leftover);
/* No more reaping, so that the loop can end. */
void leftover_stop(struct leftover *leftover);
/* After the loop: reaps and, after a moment, kills what is left. How many were killed. */
int leftover_close(struct leftover *leftover);

#endif
