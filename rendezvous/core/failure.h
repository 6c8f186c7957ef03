/* Whose failure ended a generation, and what that means for the job's next one.
 *
 *   program  a rank exited or was killed, or the command cannot be run: --max-restarts counts these
 *   node     the machine could not run its part (full disk, no process, no port, its shim is gone)
 *   network  the node was silent, or cut off from the server
 *
 * Failures of nodes and of the network use nothing of --max-restarts. They have a limit of their own
 * (restart.h), so that a job does not go on for ever on machines that are all broken. A node that
 * fails a job EXCLUDE_FAILURES times for its own reasons is excluded for that job: no rank of it is
 * placed there for EXCLUDE_US, or until an operator resumes the node. After that one more failure
 * excludes it again. */
#ifndef RENDEZVOUS_CORE_FAILURE_H
#define RENDEZVOUS_CORE_FAILURE_H

#include "rendezvous/core/job.h"

#define EXCLUDE_FAILURES 2u
#define EXCLUDE_US 600000000ull
/* A program that never told of a checkpoint, such as a PyTorch script, has its restarts back once a
 * generation has run for so long. */
#define RESTARTS_RENEWED_US 3600000000ull

/* Counts the failure of the generation at hand: renews the job's restarts, excludes the node. To be
 * called once, before the decision about a restart. */
void failure_count(struct rdzv *rdzv, struct job *job);
/* False: the only node that this server has ever known is excluded for the job. With several, one
 * that is lost, drained or not back yet may still come, and the job waits. */
bool failure_leaves_nodes(const struct rdzv *rdzv, const struct job *job);
/* The index of the job's i-th excluded node, i < job->fault_count; NODE_NONE: it is not excluded
 * now, or has no entry. */
uint16_t failure_excluded(const struct rdzv *rdzv, const struct job *job, uint32_t i);
/* Whether the node with that index is excluded. */
bool failure_excludes(const struct rdzv *rdzv, const struct job *job, uint32_t node);
/* When the first exclusion of the job ends; UINT64_MAX: there is none. */
uint64_t failure_excluded_until(const struct rdzv *rdzv, const struct job *job);
/* From the stored record: nodes that were excluded are again, for the whole time. */
void failure_restore(struct rdzv *rdzv, struct job *job);
/* An operator says that the node is well: no job excludes it. */
void failure_pardon(struct rdzv *rdzv, const char *node);

#endif
