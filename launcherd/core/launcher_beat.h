/* The beat: what is on this node, sent to the server at every interval and whenever the state of a
 * slot has changed. Private to the core. */
#ifndef LAUNCHERD_CORE_LAUNCHER_BEAT_H
#define LAUNCHERD_CORE_LAUNCHER_BEAT_H

#include "launcherd/core/launcher_actions.h"

/* Sends the first message of a connection, which lists the same as a beat. */
void launcher_hello(struct launcher *launcher, uint64_t now_us, struct launcher_actions *actions);
/* Sends a beat, with the reports that have not been acknowledged, and arms the next one. Does nothing
 * if this step has sent a beat already. At most LAUNCHER_BEAT_ACTIONS_MAX actions. */
void launcher_beat(struct launcher *launcher, uint64_t now_us, struct launcher_actions *actions);

#endif
