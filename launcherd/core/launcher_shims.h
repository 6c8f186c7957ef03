/* Events of the shims: adoption, messages, connections, deaths. Private to the core. */
#ifndef LAUNCHERD_CORE_LAUNCHER_SHIMS_H
#define LAUNCHERD_CORE_LAUNCHER_SHIMS_H

#include "launcherd/core/launcher.h"

/* LAUNCHER_EVENT_ADOPT. */
void launcher_adopt(struct launcher *launcher, const struct launcher_event *event,
                    struct launcher_actions *actions);
/* LAUNCHER_EVENT_SHIM_*. */
void launcher_on_shim(struct launcher *launcher, const struct launcher_event *event,
                      struct launcher_actions *actions);
/* Asks shims that are starting whether they still go on. */
void launcher_shims_ask(struct launcher *launcher, uint64_t now_us,
                        struct launcher_actions *actions);
/* Connects to the shims for which the time of the next attempt has come. */
void launcher_shims_connect(struct launcher *launcher, uint64_t now_us,
                            struct launcher_actions *actions);
/* The shim must have carried out its order by `at_us` (boot clock); the earliest such time
 * counts. */
void launcher_shim_end_by(struct launcher_shim *shim, uint64_t at_us);
/* Kills shims that have not ended in time. Gives up shims whose processes cannot be killed. */
void launcher_shims_enforce(struct launcher *launcher, uint64_t now_us,
                            struct launcher_actions *actions);
/* Forgets a shim of another server that ended long ago, if there is one. */
void launcher_shims_forget(struct launcher *launcher, uint64_t now_us,
                           struct launcher_actions *actions);
/* When one of these three has something to do; UINT64_MAX: never. */
uint64_t launcher_shims_timer_us(const struct launcher *launcher);

#endif
