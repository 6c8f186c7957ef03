/* Orders of the server about one shim. Private to the core. */
#ifndef LAUNCHERD_CORE_LAUNCHER_ORDERS_H
#define LAUNCHERD_CORE_LAUNCHER_ORDERS_H

#include "launcherd/core/launcher.h"

/* Carries out `start`: adds the shim and spawns it, or reports at once why it cannot. Does nothing
 * the second time. */
void launcher_start(struct launcher *launcher, const struct launcher_event *event,
                    struct launcher_actions *actions);
/* Any other order (go, world, stop, forget, report_ack): passes it on to the shim, or carries it
 * out for a dead one. `job_id`, `generation`: as in the message. */
void launcher_order(struct launcher *launcher, const struct launcher_event *event, uint64_t job_id,
                    uint32_t generation, struct launcher_actions *actions);

#endif
