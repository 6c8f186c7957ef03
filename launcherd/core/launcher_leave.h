/* The node leaves (launcherd --drain-on-term): it takes itself out of use and ends. Its beats say
 * so, and the server stops the jobs on it with their grace. When the server has recorded their end,
 * the process ends. No server can keep it waiting: shims that have got no stop after LAUNCHER_ALONE_US, whether a server
 * is connected or not, are stopped by the node itself with their job's grace; and when all have ended, it waits for so
 * long at most until the server has recorded that. Private to the core. */
#ifndef LAUNCHERD_CORE_LAUNCHER_LEAVE_H
#define LAUNCHERD_CORE_LAUNCHER_LEAVE_H

#include "launcherd/core/launcher.h"

/* Handles LEAVE. A second one changes nothing. */
void launcher_leave(struct launcher *launcher, uint64_t now_us, struct launcher_actions *actions);
/* A server has sent a welcome: it must be told again. */
void launcher_leave_welcomed(struct launcher *launcher);
/* launcher_leave_beat: a beat is being sent. launcher_leave_acked: the server has received the beat
 * of `sent_us`. */
void launcher_leave_beat(struct launcher *launcher, struct msg_beat *beat);
void launcher_leave_acked(struct launcher *launcher, uint64_t sent_us);
/* When that is due, stops the shims that no server stops. True: it did, and everything else that is
 * due must wait for the next step. */
bool launcher_leave_alone(struct launcher *launcher, uint64_t now_us,
                          struct launcher_actions *actions);
/* At the end of a step: emits LAUNCHER_LEFT once, when nothing is left here. */
void launcher_leave_settle(struct launcher *launcher, uint64_t now_us,
                           struct launcher_actions *actions);
/* When the next step is needed; UINT64_MAX: never. */
uint64_t launcher_leave_timer_us(const struct launcher *launcher);

#endif
