/* What this node knows of the history of its clusters. Private to the core. */
#ifndef LAUNCHERD_CORE_LAUNCHER_SEEN_H
#define LAUNCHERD_CORE_LAUNCHER_SEEN_H

#include "launcherd/core/launcher.h"

/* Whether a start order of this number came before. Only of the newest job that is known. */
bool launcher_seen_has(const struct launcher *launcher, const char *cluster, uint64_t job_id,
                       uint32_t generation);
/* A start order came, or a run directory with one was found. Orders SAVE_SEEN if that is news. */
void launcher_seen_note(struct launcher *launcher, const char *cluster, uint64_t job_id,
                        uint32_t generation, struct launcher_actions *actions);
/* A welcome came, which may give another lease to what runs. Likewise. */
void launcher_seen_lease(struct launcher *launcher, struct launcher_actions *actions);
/* Puts the record into the hello. `out`: [CLUSTERS_SEEN_MAX]; borrows from the launcher. Returns the
 * count. */
uint32_t launcher_seen_list(const struct launcher *launcher, struct part_cluster_seen *out);

#endif
