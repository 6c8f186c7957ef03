/* The actions of one step: a bounded list that the launcher's core fills, in the order in which the
 * edge carries them out. Private to the core.
 *
 * A full list is a programmer's mistake and asserts: LAUNCHER_ACTIONS_MAX is the sum of what one
 * event, the slots and one beat can give rise to (launcher.h). */
#ifndef LAUNCHERD_CORE_LAUNCHER_ACTIONS_H
#define LAUNCHERD_CORE_LAUNCHER_ACTIONS_H

#include "launcherd/core/launcher.h"

/* Empties the list, at the start of a step. */
void launcher_actions_begin(struct launcher_actions *actions);
/* Appends an action and returns it, to be filled in; valid until launcher_actions_begin. */
struct launcher_action *launcher_add(struct launcher_actions *actions,
                                     struct launcher_action action);
/* These two return the message of the new action, to fill in. */
struct msg *launcher_send_server(struct launcher_actions *actions, enum msg_type type);
struct msg *launcher_send_shim(struct launcher_actions *actions, const struct launcher_shim *shim,
                               enum msg_type type);
/* A line for launcherd's own log. There is room for every line that one step can write. */
void launcher_log(struct launcher_actions *actions, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Sends the server an event about the slot of a GPU. `text` is copied. */
void launcher_send_event(struct launcher_actions *actions, uint32_t slot, const char *text);

#endif
