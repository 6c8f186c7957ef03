/* Progress of the workers on its way to the server: at most one message a second and worker, the
 * newest. Private to the shim's core. */
#ifndef LAUNCHERD_CORE_SHIM_PROGRESS_H
#define LAUNCHERD_CORE_SHIM_PROGRESS_H

#include "launcherd/core/shim.h"

/* A `progress` of local worker `event->local`, of this job, generation and rank. One whose step or
 * checkpoint is before what the worker said already is ignored. */
void shim_progress_take(struct shim *shim, const struct shim_event *event);
/* Sends what is due; `local`, unless UINT32_MAX: that worker has ended, so its newest is due now. */
void shim_progress_send(struct shim *shim, uint64_t now_us, uint32_t local,
                        struct shim_actions *actions);
/* When the next one is due; UINT64_MAX: none waits. */
uint64_t shim_progress_timer_us(const struct shim *shim);

#endif
