/* When a shim must be asked, and when it must be killed: all limits of stops, leases and starts. Private to the core. */
#ifndef LAUNCHERD_CORE_LAUNCHER_DUE_H
#define LAUNCHERD_CORE_LAUNCHER_DUE_H

#include "launcherd/core/launcher.h"

/* It must go on by itself, and answers questions. */
bool launcher_due_is_watched(const struct launcher *launcher, const struct launcher_shim *shim);
/* Whether it is to be asked, or has been asked in vain. */
bool launcher_due_is_asked(const struct launcher *launcher, const struct launcher_shim *shim);
uint32_t launcher_due_asks_max(const struct launcher_shim *shim);
/* When the shim must be killed or, if it was killed, given up; UINT64_MAX: never. `why`: the reason
 * for the kill. */
uint64_t launcher_due_us(const struct launcher *launcher, const struct launcher_shim *shim,
                         const char **why);

#endif
