/* The launcher's table of shims. Private to the core.
 *
 * Pointers into the table are valid until launcher_table_remove. */
#ifndef LAUNCHERD_CORE_LAUNCHER_TABLE_H
#define LAUNCHERD_CORE_LAUNCHER_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "launcherd/core/launcher.h"
#include "launcherd/core/launcher_actions.h"

/* The revision of our own report about a dead shim: the highest one, so that no report of the shim
 * itself counts after it. */
#define LAUNCHER_REVISION_LAST UINT32_MAX

/* NULL: there is none. */
struct launcher_shim *launcher_table_find(struct launcher *launcher, uint64_t job_id,
                                          uint32_t generation);
/* A new zeroed entry. If the table is full, one dead shim of another server is dropped. NULL: the
 * table is full of shims that cannot be dropped. */
struct launcher_shim *launcher_table_add(struct launcher *launcher,
                                         struct launcher_actions *actions);
/* Removes the entry and its run directory (LAUNCHER_REMOVE). */
void launcher_table_remove(struct launcher *launcher, struct launcher_shim *shim,
                           struct launcher_actions *actions);
/* Whether the shim belongs to the server that we are connected to. Other shims are not listed and
 * get no orders. Before the first welcome all shims count as the server's. */
bool launcher_is_ours(const struct launcher *launcher, const struct launcher_shim *shim);
/* Whether its workers may run: no other shim may get its slots. */
bool launcher_shim_is_active(const struct launcher_shim *shim);
/* Its process is gone: from now on we report in its place. */
void launcher_shim_set_dead(struct launcher_shim *shim, uint64_t now_us);
/* Sets why the shim failed. The text may quote a path or a user's name. It is made printable,
 * because a report with a text that no message can carry would never arrive. */
void launcher_shim_set_cause(struct launcher_shim *shim, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The slots of all active shims. */
uint64_t launcher_table_slots(const struct launcher *launcher);

#endif
