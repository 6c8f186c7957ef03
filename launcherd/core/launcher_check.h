/* The invariants of the launcher's state, asserted after each step. Private to the core. */
#ifndef LAUNCHERD_CORE_LAUNCHER_CHECK_H
#define LAUNCHERD_CORE_LAUNCHER_CHECK_H

#include "launcherd/core/launcher.h"

/* `lease_before_us`: lease_until_us before the step. What a peer sends can never fail this:
 * messages that contradict the state are refused or ignored before they change it. */
void launcher_check(const struct launcher *launcher, uint64_t lease_before_us);

#endif
