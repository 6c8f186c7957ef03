/* The life of one generation: start, go, world, the first failure, the stop, the end. */
#ifndef RENDEZVOUS_CORE_GENERATION_H
#define RENDEZVOUS_CORE_GENERATION_H

#include "rendezvous/core/job.h"

/* The next generation of a job that has none: the places of `gang` are on nodes of the roster. The
 * job owns the gang from now on. */
void generation_start(struct rdzv *rdzv, struct job *job, const struct gang *gang);
/* Its time limit is over then, unless it is over earlier. */
void generation_limit(struct rdzv *rdzv, struct job *job, uint64_t at_us);
/* A generation of a stored record goes on. Parts whose node has no entry are lost. */
void generation_restore(struct rdzv *rdzv, struct job *job);
/* A shim has reported on its part. */
void generation_report(struct rdzv *rdzv, struct job *job, uint32_t part,
                       const struct msg_shim_report *report);
/* Its node lists the part, or does not. */
void generation_listed(struct rdzv *rdzv, struct job *job, uint32_t part, enum shim_phase phase);
void generation_unlisted(struct rdzv *rdzv, struct job *job, uint32_t part);
/* The part counts as ended, and the generation as failed. */
void generation_part_lost(struct rdzv *rdzv, struct job *job, uint32_t part,
                          enum failure_class class, const char *cause);
/* It hangs, as the cause says; the others wait for that rank, -1: nobody knows which. `stacks`: where the
 * ranks stand, for people. Their grace is short: a rank in a collective can save nothing. */
void generation_hang(struct rdzv *rdzv, struct job *job, int32_t rank, const char *cause,
                     const char *stacks);
/* The start order of this part cannot be made: it counts as ended, and the job fails without another
 * try. */
void generation_start_failed(struct rdzv *rdzv, struct job *job, uint32_t part, const char *cause);
/* Stops all parts; why not STOP_NONE. */
void generation_stop(struct rdzv *rdzv, struct job *job, enum stop_cause why, uint32_t signal,
                     uint64_t grace_us);
/* Ends the generation for the sake of the next one, which follows at once: SIGTERM, the job's grace, and
 * no budget is used (may_stop: whether that is possible). `why` is told to users. False: nothing is done, as the generation is being stopped
 * already, or some of its ranks have ended well, so that the job is about to end. */
bool generation_may_stop(const struct job *job);
bool generation_stop_planned(struct rdzv *rdzv, struct job *job, const char *why);
/* The job ends now; a generation of it that is left is over. */
void job_end(struct rdzv *rdzv, struct job *job, enum job_state state, int32_t exit_code,
             uint32_t signal, bool is_ours);

#endif
