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
/* Connects to the shims for which the time of the next attempt has come. */
void launcher_shims_connect(struct launcher *launcher, uint64_t now_us,
                            struct launcher_actions *actions);
/* The earliest of these times; UINT64_MAX: there is none. */
uint64_t launcher_shims_timer_us(const struct launcher *launcher);

#endif
