/* The class of the failure that ended a generation, and what it means for the job's next generation.
 *
 *   program  a rank exited or was killed, or the command cannot be run: --max-restarts counts these
 *   hang     no progress (hang.h): counts like a failure of the program
 *   node     the machine could not run its part (full disk, no process, no port, its shim is gone)
 *   network  the node was silent, or cut off from the server
 *
 * Failures of nodes and of the network do not count against --max-restarts. They have a limit of their
 * own (restart.h), so that a job does not go on for ever on machines that are all broken.
 *
 * Exclusion: a node that fails a job EXCLUDE_FAILURES times is excluded for that job: none of its ranks
 * is placed there for EXCLUDE_US, or until an operator resumes the node. After that, one more failure
 * excludes it again. Failures of class node count for this. So do crashes (SIGSEGV, SIGBUS, SIGILL,
 * SIGFPE, a CUDA error) and hangs of ranks on the node, if enough other nodes are available: the machine
 * may be the cause. They still count against --max-restarts.
 *
 * Again: much of what makes a node fail passes within seconds (no process, no memory, a file server
 * that is being restarted). The job goes to another node first (place.h). A node without which it cannot
 * run is excluded only after RESTART_ALONE restarts, whose back-off takes a minute.
 *
 * One machine: where all nodes are on one machine (run --standalone), nothing else can come. Then it is excluded
 * after RESTART_ONE_MACHINE restarts, and a job that has never run has failed, also if it was to wait for nodes. */
#ifndef RENDEZVOUS_CORE_FAILURE_H
#define RENDEZVOUS_CORE_FAILURE_H

#include <signal.h>

#include "rendezvous/core/job.h"

/* Whether --max-restarts counts a failure of this class. */
static inline bool failure_is_program(uint32_t class)
{
    return class == FAILURE_PROGRAM || class == FAILURE_HANG;
}

#define EXCLUDE_FAILURES 2u
#define EXCLUDE_US 600000000ull
/* A program that never reports a checkpoint, such as a PyTorch script, gets its restarts back once
 * a generation has run this long. */
#define RESTARTS_RENEWED_US 3600000000ull
#define EARLY_US 20000000ull
/* If a rank fails at most this long before its peer's node is last heard, the node's loss may still
 * be the cause: the clocks of two nodes differ, and messages take time. */
#define FAILURE_BEFORE_US 1000000u
/* Whether the rank may have failed because it lost its peers: such a rank exits, or aborts (NCCL's
 * watchdog). Any other signal has another cause. */
static inline bool failure_may_be_for_want(const struct rdzv_record *record)
{
    return record->failed_class == FAILURE_PROGRAM && record->failed_rank >= 0 &&
           (record->failed_signal == 0 || record->failed_signal == SIGABRT);
}

/* Whether the failure looks like that of a bad processor, memory or GPU. SIGABRT does not: programs
 * raise it themselves. */
bool failure_is_crash(const struct rdzv_record *record);
/* Counts the failure of the current generation: renews the job's restarts if it ran long enough,
 * and excludes the node if it failed too often. Call once, before the decision about a restart. */
void failure_count(struct rdzv *rdzv, struct job *job);
/* Whether the node failed the job, and no other node could run it now. */
bool failure_is_alone(const struct rdzv *rdzv, const struct job *job);
/* If a node cannot run the command (126, 127), another one may: a shared disk may not be mounted there.
 * True: another node is tried, once and at once, the first one is excluded, and this counts as a
 * failure of the node. False: no other node has room for the job now, a second node says the same, restarts are
 * off, or it was no such failure. */
bool failure_goes_elsewhere(struct rdzv *rdzv, struct job *job);
/* Whether the job, whose staged directory that node cannot have, is tried on other nodes: once, if there is room. Then it does
 * not use this one. */
bool failure_stage_elsewhere(struct rdzv *rdzv, struct job *job, const char *node);
/* The job's reason becomes "REASON: why". A long reason is cut after a word, and ends with "...". */
void failure_explain(struct rdzv_record *record, const char *why);
/* False: the only node that this server has ever known is excluded for the job. If it has known
 * several, the job waits: a lost or drained node may come back. On one machine: the nodes that are not excluded are
 * too few. */
bool failure_leaves_nodes(const struct rdzv *rdzv, const struct job *job);
/* The index of the job's i-th faulty node, i < job->fault_count. NODE_NONE: that node is not
 * excluded now, or is not in the table of nodes. */
uint16_t failure_excluded(const struct rdzv *rdzv, const struct job *job, uint32_t i);
/* Whether the node with that index is excluded. */
bool failure_excludes(const struct rdzv *rdzv, const struct job *job, uint32_t node);
/* When the job's first exclusion ends; UINT64_MAX: no node is excluded. */
uint64_t failure_excluded_until(const struct rdzv *rdzv, const struct job *job);
/* Restores the exclusions from the stored record. Each lasts its whole time again. */
void failure_restore(struct rdzv *rdzv, struct job *job);
/* Excludes a node because it is slow for the job, as if it had failed the job. */
void failure_exclude(struct rdzv *rdzv, struct job *job, const char *node);
/* The node has let a deadline of a start pass (steps.h): it is excluded at once if the job can run without it. If it
 * cannot, the node is chosen last for as long (place.h), as another one may come back. A server that starts later does
 * not know of the second. */
void failure_late(struct rdzv *rdzv, struct job *job, const char *node);
/* The index of the node of the job's i-th faulty node, i < job->fault_count, if it was late with a start and is to be
 * chosen last. NODE_NONE: it was not, or is not in the table of nodes. */
uint16_t failure_avoided(const struct rdzv *rdzv, const struct job *job, uint32_t i);
/* An operator says that the node is well: no job excludes it any more. */
void failure_pardon(struct rdzv *rdzv, const char *node);

#endif
