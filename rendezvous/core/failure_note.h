/* What is kept of a failed generation for `ddpctl why`. It is noted when the generation fails and
 * again when all its ranks have ended. Both times it is stored (RDZV_PERSIST_FAILURE), so that it
 * can be read after the node is gone. */
#ifndef RENDEZVOUS_CORE_FAILURE_NOTE_H
#define RENDEZVOUS_CORE_FAILURE_NOTE_H

#include "rendezvous/core/restart.h"

/* Notes the cause of the current generation's failure, which the job's record has already.
 * `report`: from the node of the failed rank, borrowed for the step; NULL: the node sent none. */
void failure_note_cause(struct rdzv *rdzv, struct job *job, const struct msg_shim_report *report);
/* Another report from the node of the failed rank: the exception may be known only now. */
void failure_note_more(struct rdzv *rdzv, struct job *job, const struct msg_shim_report *report);
/* Every part has ended, and the generation still belongs to the job: notes how its ranks ended and
 * what follows. */
void failure_note_end(struct rdzv *rdzv, struct job *job, const struct restart_answer *answer);
/* Call after failure_note_end: the restart waits for a lease, which takes longer than the
 * back-off. */
void failure_note_fence(struct rdzv *rdzv, struct job *job, uint64_t delay_us);
/* A rank of the current generation failed by itself, `age_us` ago. */
void failure_note_rank(const struct rdzv *rdzv, struct job *job, uint32_t rank, uint64_t age_us);

#endif
