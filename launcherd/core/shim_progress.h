/* Progress of the workers, on its way to the server: the newest of each worker, at most once a
 * second. Private to the shim's core. */
#ifndef LAUNCHERD_CORE_SHIM_PROGRESS_H
#define LAUNCHERD_CORE_SHIM_PROGRESS_H

#include "launcherd/core/shim.h"

/* Takes a `progress` of local worker `event->local`, for this job, generation and rank. It is
 * ignored if its step or checkpoint is older than what the worker reported before. */
void shim_progress_take(struct shim *shim, const struct shim_event *event);
/* Sends what each worker told last once more: a server that was started again knows neither its
 * phase nor what it promised, and a stopped worker tells nothing. */
void shim_progress_repeat(struct shim *shim);
/* Sends what is due. `local`: this worker has ended, so its newest progress is due now; UINT32_MAX:
 * none. */
void shim_progress_send(struct shim *shim, uint64_t now_us, uint32_t local,
                        struct shim_actions *actions);
/* When the next one is due; UINT64_MAX: none. */
uint64_t shim_progress_timer_us(const struct shim *shim);

#endif
