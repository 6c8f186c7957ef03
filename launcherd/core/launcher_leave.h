/* The node takes itself out of use and ends (launcherd --drain-on-term): its beats say that it leaves,
 * the server stops the jobs on it with their grace, and when the server has recorded their end, the
 * process ends. Where no server answers, the shims are stopped from here. Private to the core. */
#ifndef LAUNCHERD_CORE_LAUNCHER_LEAVE_H
#define LAUNCHERD_CORE_LAUNCHER_LEAVE_H

#include "launcherd/core/launcher.h"

/* LEAVE. A second one changes nothing. */
void launcher_leave(struct launcher *launcher, uint64_t now_us, struct launcher_actions *actions);
/* The server that welcomes has to be told again. */
void launcher_leave_welcomed(struct launcher *launcher);
/* A beat leaves; the server has taken the one of `sent_us`. */
void launcher_leave_beat(struct launcher *launcher, struct msg_beat *beat);
void launcher_leave_acked(struct launcher *launcher, uint64_t sent_us);
/* Stops the shims that no server stops, once that is due. True: it did, and the rest of what is due
 * has to wait for the next step. */
bool launcher_leave_alone(struct launcher *launcher, uint64_t now_us,
                          struct launcher_actions *actions);
/* At the end of a step: LAUNCHER_LEFT, once, when nothing is here any more. */
void launcher_leave_settle(struct launcher *launcher, uint64_t now_us,
                           struct launcher_actions *actions);
/* UINT64_MAX: never. */
uint64_t launcher_leave_timer_us(const struct launcher *launcher);

#endif
