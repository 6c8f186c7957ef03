/* What is kept of a failed generation, for `ddpctl why`: noted when it fails, again when its ranks
 * have ended, and stored both times (RDZV_PERSIST_FAILURE), so that it is there when the node is gone. */
#ifndef RENDEZVOUS_CORE_FAILURE_NOTE_H
#define RENDEZVOUS_CORE_FAILURE_NOTE_H

#include "rendezvous/core/restart.h"

/* The cause of the generation at hand is in the job's record. `report`, borrowed for the step: that of
 * the node with the failed rank; NULL: the node said nothing. */
void failure_note_cause(struct rdzv *rdzv, struct job *job, const struct msg_shim_report *report);
/* Another report of the node whose rank has failed: its exception may be known only now. */
void failure_note_more(struct rdzv *rdzv, struct job *job, const struct msg_shim_report *report);
/* Every part has ended, and the generation is still the job's: what became of its ranks, and what
 * follows. */
void failure_note_end(struct rdzv *rdzv, struct job *job, const struct restart_answer *answer);
/* After failure_note_end: the job waits for a lease, longer than for its back-off. */
void failure_note_fence(struct rdzv *rdzv, struct job *job, uint64_t delay_us);
/* A rank of the generation at hand failed by itself so long ago. */
void failure_note_rank(const struct rdzv *rdzv, struct job *job, uint32_t rank, uint64_t age_us);

#endif
