/* --signals-to-handle: signals beside those that interrupt.h handles, which cancel the job, too, and reach its
 * ranks first. Slurm sends USR1 before a time limit, for instance. */
#ifndef DDPCTL_MORE_SIGNALS_H
#define DDPCTL_MORE_SIGNALS_H

#include <uv.h>

#include "ddpctl/interrupt.h"

#define MORE_SIGNALS_MAX 16u

struct more_signals {
    uv_signal_t handles[MORE_SIGNALS_MAX];
    uint32_t count;
};

/* `mask`: bit N is signal N (torchrun_signals). */
void more_signals_open(struct more_signals *more, struct interrupt *interrupt, uv_loop_t *loop,
                       uint64_t mask);
/* The handles are free after the loop's next turn. */
void more_signals_close(struct more_signals *more);

#endif
