/* A state of the past: a copy was put back, a disk was rolled back, a log was lost. The state cannot know it, but nodes
 * can: each remembers the newest job of this cluster that it was told to start, with its generation. A server that knows
 * less says so, and goes on above those numbers, so that no number stands for two jobs. What it knows of may run in a
 * newer generation on a node that has not called yet, so it starts nothing of that until the leases from before its
 * start have ended.
 *
 * Until a node calls, nothing says it, and the node that knows may be cut off, or have got its key after that state. So a
 * server whose store cannot tell that its state is the newest starts nothing of it, either, until the leases have ended.
 * New jobs start at once.
 *
 * A restored copy says so itself. The same holds for its jobs: what was given of them since is not known, nor how long
 * ago, since only a clock that may have been set could tell. */
#ifndef RENDEZVOUS_CORE_HISTORY_H
#define RENDEZVOUS_CORE_HISTORY_H

#include "rendezvous/core/job.h"
#include "rendezvous/core/roster.h"

/* A node that is this far ahead is not believed: its file is damaged. */
#define HISTORY_AHEAD_MAX 1000000000u
/* Nor if it says a longer lease than this. */
#define LEASE_BELIEVED_MAX_US 86400000000u

/* All of the state was restored. */
void history_restored(struct rdzv *rdzv);
/* Compares what this node has seen, and the shims that it lists, with what the server knows. Call before its list is
 * reconciled. A hello may list shims of other clusters, since it comes before the welcome: these only make a job skip
 * numbers of generations. */
void history_hello(struct rdzv *rdzv, const struct node *node, const struct msg_node_hello *hello);
void history_beat(struct rdzv *rdzv, const struct node *node);
/* Whether the job must not start yet. Sets `*until_us` then. */
bool history_holds(const struct rdzv *rdzv, const struct job *job, uint64_t *until_us);
/* Whether this job, or one with a smaller id, may run on a node that is not heard, also if it has ended here: what follows
 * it must wait. Sets `*until_us` then. */
bool history_may_run(const struct rdzv *rdzv, uint64_t job_id, uint64_t *until_us);
/* Likewise for the orders of a generation that this state was about to start: the job may run in a later one on a node
 * that is not heard. */
bool history_holds_start(const struct rdzv *rdzv, const struct job *job);

#endif
