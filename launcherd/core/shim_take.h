/* Workers that were started in advance (launcherd/shim/warm_main.h) must report that they have
 * taken their ranks. Part of the shim's core. A worker that has not reported within SHIM_TAKE_US is
 * killed, and another process is started for its rank when it has ended. The same happens if a
 * worker ends before it reports. The rank has not begun, so this is no failure. A worker that
 * cannot be killed is a failure of the node. */
#ifndef LAUNCHERD_CORE_SHIM_TAKE_H
#define LAUNCHERD_CORE_SHIM_TAKE_H

#include "launcherd/core/shim.h"

/* Taking a rank means reading a message and a file in memory, which takes under a millisecond. Even
 * with a hundred runnable processes for each core, 5 s are far more than it needs. Starting another
 * process takes about as long. */
#define SHIM_TAKE_US 5000000u

void shim_take_begin(struct shim_rank *rank, const struct shim_event *event);
/* The worker has reported it, or has joined, which only a worker that took its rank does. */
void shim_take_done(struct shim_rank *rank);
/* True: it had not taken its rank, and another one is started. */
bool shim_take_exited(struct shim *shim, struct shim_rank *rank, const struct shim_event *event,
                      struct shim_actions *actions);
/* Does what is due by time. */
void shim_take_check(struct shim *shim, const struct shim_event *event,
                     struct shim_actions *actions);
/* When that is; UINT64_MAX: never. */
uint64_t shim_take_timer_us(const struct shim *shim);

#endif
