/* The life of one generation: start, go, world, the first failure, the stop, the end. */
#ifndef RENDEZVOUS_CORE_GENERATION_H
#define RENDEZVOUS_CORE_GENERATION_H

#include "rendezvous/core/job.h"

/* Starts the next generation of a job that has none. The places of `gang` are on nodes of the
 * roster. The job owns the gang from now on. */
void generation_start(struct rdzv *rdzv, struct job *job, const struct gang *gang);
/* Sets the time limit of the current generation, unless it has an earlier one. */
void generation_limit(struct rdzv *rdzv, struct job *job, uint64_t at_us);
/* Continues a generation from a stored record. Parts whose node is not in the table count as
 * lost. */
void generation_restore(struct rdzv *rdzv, struct job *job);
/* A shim has reported on its part. */
void generation_report(struct rdzv *rdzv, struct job *job, uint32_t part,
                       const struct msg_shim_report *report);
/* The part's node lists its shim in this phase, or (generation_unlisted) does not list it. */
void generation_listed(struct rdzv *rdzv, struct job *job, uint32_t part, enum shim_phase phase);
void generation_unlisted(struct rdzv *rdzv, struct job *job, uint32_t part);
/* The launcherd that now has the part's node cannot know whether the part runs: it counts until its
 * lease is over (node.away_until_us), unless it is listed. */
void generation_away(struct job *job, uint32_t part);
/* The part counts as ended, and the generation has failed. */
void generation_part_lost(struct rdzv *rdzv, struct job *job, uint32_t part,
                          enum failure_class class, const char *cause);
/* The generation has failed because of this part, which goes on until it has carried out the stop. */
void generation_part_failed(struct rdzv *rdzv, struct job *job, uint32_t part,
                            enum failure_class class, const char *cause);
/* Every rank has exited 0, and the shim of the first part, which only keeps the store, is not waited for. */
void generation_store_left(struct rdzv *rdzv, struct job *job);
/* The generation hangs, as `cause` says. The other ranks wait for `rank`; -1: nobody knows for
 * which. `stacks`: where the ranks are, as text for people. The ranks get a short grace, since a
 * rank in a collective cannot save anything. */
void generation_hang(struct rdzv *rdzv, struct job *job, int32_t rank, const char *cause,
                     const char *stacks);
/* No start order can be made for this part: the part counts as ended, and the job fails without a
 * restart. */
void generation_start_failed(struct rdzv *rdzv, struct job *job, uint32_t part, const char *cause);
/* A part that has not begun cannot have its staged directory. Another node may have it: one is tried, then the job fails. */
void generation_stage_lost(struct rdzv *rdzv, struct job *job, uint32_t part, const char *cause);
/* Stops all parts. `why` must not be STOP_NONE. */
void generation_stop(struct rdzv *rdzv, struct job *job, enum stop_cause why, uint32_t signal,
                     uint64_t grace_us);
/* Ends the generation as planned: the next one follows at once. The ranks get SIGTERM and the job's
 * grace, and nothing is counted against a budget. `why` is shown to users. generation_may_stop says
 * whether it is possible; if not, generation_stop_planned does nothing and returns false: the
 * generation is being stopped already, or some of its ranks have exited 0, so that the job is about
 * to end. */
bool generation_may_stop(const struct job *job);
bool generation_stop_planned(struct rdzv *rdzv, struct job *job, const char *why);
/* Ends the job now, together with its current generation if it has one. `is_ours`: the server chose
 * the exit code, not a rank. */
void job_end(struct rdzv *rdzv, struct job *job, enum job_state state, int32_t exit_code,
             uint32_t signal, bool is_ours);

#endif
