/* A shim that does not answer: the state of its process, and signals to its ranks in its place. Part of the edge of
 * launcherd. */
#ifndef LAUNCHERD_NODE_NODE_SILENT_H
#define LAUNCHERD_NODE_NODE_SILENT_H

#include "launcherd/node/node_shims.h"

/* LOOK_SHIM: posts SHIM_LOOKED. */
void node_silent_look(struct node_shims *shims, uint64_t job_id, uint32_t generation);
/* SIGNAL_RANKS: as the shim would at first (process/signal_rule.h). Ranks that were never reported to this launcherd get
 * none. */
void node_silent_signal(struct node_shims *shims, uint64_t job_id, uint32_t generation, int signal);

#endif
