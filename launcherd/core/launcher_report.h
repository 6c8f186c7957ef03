/* Reports about shims that cannot report themselves any more. Private to the core. */
#ifndef LAUNCHERD_CORE_LAUNCHER_REPORT_H
#define LAUNCHERD_CORE_LAUNCHER_REPORT_H

#include "launcherd/core/launcher_actions.h"

/* Reports how the generation of the dead `shim` ended here: its own last report if it had recorded
 * one, otherwise all its ranks as lost. At most LAUNCHER_REPORTS_MAX in one step. */
void launcher_report_dead(struct launcher_actions *actions, const struct launcher_shim *shim,
                          uint64_t now_us);
/* Reports that there is no such shim here, because of `cause` (borrowed until the next step). */
void launcher_report_absent(struct launcher_actions *actions, uint64_t job_id, uint32_t generation,
                            const char *cause);

#endif
