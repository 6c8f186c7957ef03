/* Shims that do not answer although their ranks run: stopped by a signal or a debugger, or hanging in the kernel. Such a
 * shim is asked, as one that starts is, but it is not killed for its silence: its ranks may be well. People are told, once;
 * the beats say so as long as it lasts. Only a stop must not wait for it: then launcherd signals its ranks itself, and
 * kills the shim, and them with it, when the grace is over or no rank is left. One that has ended and does not tell how
 * is killed: nothing of it runs, and its end is in its folder. */
#ifndef LAUNCHERD_CORE_LAUNCHER_SILENT_H
#define LAUNCHERD_CORE_LAUNCHER_SILENT_H

#include "launcherd/core/launcher.h"
#include "launcherd/core/launcher_actions.h"

/* Its ranks have ended, and the server that is there has not been told how. */
bool launcher_silent_owes_end(const struct launcher *launcher, const struct launcher_shim *shim);
/* Whether its silence is for people: it has begun its ranks, or is adopted and has not said hello yet; or it owes its
 * end, for which the job waits. */
bool launcher_silent_minds(const struct launcher *launcher, const struct launcher_shim *shim);
/* Whether it is asked because of a stop. One that still starts is not: the limits of its start hold, and that of the
 * stop. */
bool launcher_silent_is_to_stop(const struct launcher_shim *shim);
/* It has said something. */
void launcher_silent_heard(struct launcher_shim *shim, uint64_t now_us,
                           struct launcher_actions *actions);
/* It was asked in vain. */
void launcher_silent_begin(struct launcher_shim *shim, uint64_t now_us,
                           struct launcher_actions *actions);
/* SHIM_LOOKED. */
void launcher_silent_looked(struct launcher_shim *shim, const struct launcher_event *event,
                            struct launcher_actions *actions);
/* The server stops it. */
void launcher_silent_stop(struct launcher_shim *shim, const struct msg_stop *stop, uint64_t now_us,
                          struct launcher_actions *actions);
/* Looks again at those that are being stopped. */
void launcher_silent_look(struct launcher *launcher, uint64_t now_us,
                          struct launcher_actions *actions);
/* When that is due; UINT64_MAX: never. */
uint64_t launcher_silent_look_us(const struct launcher_shim *shim);
/* For a beat. Returns their number. */
uint32_t launcher_silent_list(const struct launcher *launcher, uint64_t now_us,
                              struct part_shim_silent out[SHIMS_SILENT_MAX]);

#endif
