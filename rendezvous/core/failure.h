/* Whose failure ended a generation, and what that means for the job's next one.
 *
 *   program  a rank exited or was killed, or the command cannot be run: --max-restarts counts these
 *   hang     no progress (hang.h): counts as the program's
 *   node     the machine could not run its part (full disk, no process, no port, its shim is gone)
 *   network  the node was silent, or cut off from the server
 *
 * Failures of nodes and of the network use nothing of --max-restarts. They have a limit of their own
 * (restart.h), so that a job does not go on for ever on machines that are all broken. A node that
 * fails a job EXCLUDE_FAILURES times for its own reasons is excluded for that job: no rank of it is
 * placed there for EXCLUDE_US, or until an operator resumes the node. After that one more failure
 * excludes it again. So does a node on which ranks of the job crashed twice (SIGSEGV, SIGBUS, SIGILL, SIGFPE,
 * a CUDA error) or were waited for in vain, if enough other nodes are there: such a failure may be the
 * machine's, and counts as the program's all the same. */
#ifndef RENDEZVOUS_CORE_FAILURE_H
#define RENDEZVOUS_CORE_FAILURE_H

#include <signal.h>

#include "rendezvous/core/job.h"

/* Failures that --max-restarts counts. */
static inline bool failure_is_program(uint32_t class)
{
    return class == FAILURE_PROGRAM || class == FAILURE_HANG;
}

#define EXCLUDE_FAILURES 2u
#define EXCLUDE_US 600000000ull
/* A program that never told of a checkpoint, such as a PyTorch script, has its restarts back once a
 * generation has run for so long. */
#define RESTARTS_RENEWED_US 3600000000ull
#define EARLY_US 20000000ull
/* A rank that failed at most so long before a node was gone may have failed for want of it: clocks of two nodes, and the way
 * to the server. */
#define FAILURE_BEFORE_US 1000000u
/* A rank that has lost its peers exits, or aborts (NCCL's watchdog); another signal has another cause. */
static inline bool failure_may_be_for_want(const struct rdzv_record *record)
{
    return record->failed_class == FAILURE_PROGRAM && record->failed_rank >= 0 &&
           (record->failed_signal == 0 || record->failed_signal == SIGABRT);
}

/* Counts the failure of the generation at hand: renews the job's restarts, excludes the node. To be
 * called once, before the decision about a restart. */
void failure_count(struct rdzv *rdzv, struct job *job);
/* A program that cannot work (a missing file, a wrong argument, a syntax error) fails in the same way each
 * time. True: it has failed three times in a row within EARLY_US of its start, each time with the same exit code
 * and the same last line of output (two may be one shortage of the machine); it has never run for longer, nor told of a step or a checkpoint. `why` says
 * so, and so does the job's reason. To be called once for each failed generation, after failure_count;
 * remembers what came. Never counts: a signal, also as a shell passes it on (128 + N), no output, or anything
 * of a node or of the network. */
bool failure_early(struct rdzv *rdzv, struct job *job, char why[REASON_BYTES_MAX]);
/* A program that fails for what is in it fails at the same step each time. True: three failures of the program
 * (or hangs) in a row had the same rank, exit code or signal, and last line of output, at the same step, as
 * exactly as progress told it; `why` says so, and so does the job's reason. Never counts: a signal from
 * outside (SIGKILL, SIGTERM and so on), no output, unless it is a crash, or a generation that told no step. */
bool failure_same(struct rdzv *rdzv, struct job *job, char why[REASON_BYTES_MAX]);
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
/* It is slow for the job: it is excluded as if it had failed it. */
void failure_exclude(struct rdzv *rdzv, struct job *job, const char *node);
/* An operator says that the node is well: no job excludes it. */
void failure_pardon(struct rdzv *rdzv, const char *node);

#endif
