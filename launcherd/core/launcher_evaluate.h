/* What an answer of NVML, or an Xid of the driver, means for the slot of the GPU. Private to the
 * core. */
#ifndef LAUNCHERD_CORE_LAUNCHER_EVALUATE_H
#define LAUNCHERD_CORE_LAUNCHER_EVALUATE_H

#include "launcherd/core/launcher.h"

/* LAUNCHER_EVENT_GPU. */
void launcher_on_gpu(struct launcher *launcher, const struct launcher_event *event,
                     struct launcher_actions *actions);
/* LAUNCHER_EVENT_XID. */
void launcher_on_xid(struct launcher *launcher, const struct launcher_event *event,
                     struct launcher_actions *actions);

#endif
