/* Elastic jobs (--nodes MIN:MAX) run on a changing number of nodes. This part decides how many nodes
 * the next generation has, and when a running generation ends so that a different number can follow.
 * Drains, stragglers and gone nodes also concern jobs that have spares (spares.h).
 *
 *   start, restart  The job takes as many nodes as have room, from MIN to MAX. It waits at most
 *                   ELASTIC_WAIT_US for slots that will be free in seconds (a GPU that is being
 *                   checked after its last job; nodes that reconnect to a restarted server)
 *   growth          If more nodes have free slots that no waiting job needs, the generation ends as
 *                   planned (generation_stop_planned) once the program has committed a checkpoint, and
 *                   the next one is larger. At most once in rdzv_options.grow_us. A program that
 *                   reports no checkpoints is never stopped for growth
 *   stragglers      With --replace-stragglers, the generation ends in the same way if a spare is
 *                   available, and the straggler's node is excluded for the job for ten minutes
 *                   (failure.h)
 *   drain           A job with a part on a slot that an operator has drained moves to other nodes if
 *                   enough of them have room. Otherwise it stays until it ends
 *   gone nodes      A generation that is being stopped does not wait for nodes that closed their
 *                   connection ELASTIC_GONE_US ago, if its workers have a fence of their own
 *                   (fence.h), or under --no-fence. ELASTIC_MISSED_US is enough if a rank on another
 *                   node failed at the same time: when launcherd is only restarted, its ranks go on
 *                   and their peers do not fail */
#ifndef RENDEZVOUS_CORE_ELASTIC_H
#define RENDEZVOUS_CORE_ELASTIC_H

#include "rendezvous/core/sched.h"

#define ELASTIC_WAIT_US 10000000u
#define ELASTIC_GONE_US 1000000u
#define ELASTIC_MISSED_US 100000u /* time for reports that are still on their way */

static inline bool elastic_is(const struct rdzv_record *record)
{
    return record->nodes_min < record->nodes_max;
}

/* How many nodes the job's next generation gets, if `fit` nodes have room for a part of it and its
 * user may use `slots` more slots. 0: too few. */
uint32_t elastic_nodes(const struct rdzv_record *record, uint32_t fit, uint64_t slots);
/* The same for a queued job, with the free slots of this pass. */
uint32_t elastic_choose(const struct rdzv *rdzv, const struct pass *pass,
                        const struct queued *entry, const struct pool *pool);
/* True: the restarting job still waits, until job->more_until_us, for slots on more nodes. */
bool elastic_waits(const struct rdzv *rdzv, const struct pass *pass, struct job *job);
/* A job has committed a checkpoint. */
void elastic_checkpoint(struct rdzv *rdzv, struct job *job);
/* True: elastic_stop has nothing to do. */
bool elastic_is_idle(const struct rdzv *rdzv);
/* At the end of a pass: stop generations of jobs that can grow or that can move away from drained
 * slots. False: no room was left for actions. */
bool elastic_stop(struct rdzv *rdzv, const struct pass *pass);
/* In each step: stop waiting for gone nodes. */
void elastic_tick(struct rdzv *rdzv);

#endif
