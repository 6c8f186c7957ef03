/* Questions about the parts of a generation as a whole. */
#ifndef RENDEZVOUS_CORE_PARTS_H
#define RENDEZVOUS_CORE_PARTS_H

#include "rendezvous/core/state.h"

/* True: no process of the part is left that the server could still reach. */
bool parts_is_over(const struct part_state *part);
bool parts_all_over(const struct job *job);
bool parts_all_at_least(const struct job *job, enum shim_phase phase);
bool parts_all_joined(const struct job *job);
/* All ranks of that part have exited 0. */
bool parts_all_succeeded(const struct job *job, uint32_t part);
/* Some part has reported phase RUNNING or a later one. */
bool parts_any_runs(const struct job *job);
/* True: every other node has ended its part and the ranks on the first node have exited 0. Its shim
 * only keeps the store for the others (launcherd/core/shim_store.h). */
bool parts_only_store_is_left(const struct job *job);

#endif
