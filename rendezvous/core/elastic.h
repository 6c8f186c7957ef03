/* Jobs that may run on a changing number of nodes (--nodes MIN:MAX): how many nodes the next generation
 * has, and when a running one ends for the sake of another. Drains, stragglers and gone nodes also concern
 * jobs that have spares (spares.h).
 *
 *   start, restart  on as many nodes as have room, from MIN to MAX. It waits for slots that will be free in
 *                   seconds (a GPU that is being checked after its last job; the nodes of a server that has
 *                   just started), ELASTIC_WAIT_US at most
 *   growth          when its program has committed a checkpoint, if slots of more nodes are free that no
 *                   waiting job needs: the generation ends as planned (generation_stop_planned), and the next
 *                   one is larger. At most once in rdzv_options.grow_us. A program that tells of no checkpoint
 *                   is never stopped for growth
 *   stragglers      under --replace-stragglers, likewise, if a spare is there: its node is excluded for the
 *                   job for ten minutes (failure.h)
 *   drain           a job with a part on a slot that an operator has drained moves away, if enough other
 *                   nodes have room. Else it goes on until its end
 *   gone nodes      a generation that is being stopped does not wait for nodes that closed their connection
 *                   ELASTIC_GONE_US ago, if its workers have a fence of their own (fence.h), or under
 *                   --no-fence. ELASTIC_MISSED_US is enough where a rank on another node failed at the same
 *                   time: a launcherd that is only restarted leaves its ranks alone, so nobody misses them */
#ifndef RENDEZVOUS_CORE_ELASTIC_H
#define RENDEZVOUS_CORE_ELASTIC_H

#include "rendezvous/core/sched.h"

#define ELASTIC_WAIT_US 10000000u
#define ELASTIC_GONE_US 1000000u
#define ELASTIC_MISSED_US 100000u /* for reports that are on their way */

static inline bool elastic_is(const struct rdzv_record *record)
{
    return record->nodes_min < record->nodes_max;
}

/* How many nodes the next generation of a job has, where so many have room for a part of it and its user
 * may have so many slots. 0: too few. */
uint32_t elastic_nodes(const struct rdzv_record *record, uint32_t fit, uint64_t slots);
/* The same for a job of the queue that fits into this pool. */
uint32_t elastic_choose(const struct rdzv *rdzv, const struct pass *pass,
                        const struct queued *entry, const struct pool *pool);
/* A job that restarts waits until job->more_until_us for slots of more nodes. */
bool elastic_waits(const struct rdzv *rdzv, const struct pass *pass, struct job *job);
/* A job has committed a checkpoint. */
void elastic_checkpoint(struct rdzv *rdzv, struct job *job);
/* elastic_stop has nothing to look at. */
bool elastic_is_idle(const struct rdzv *rdzv);
/* At the end of a pass: ends generations of jobs that can grow, or move away from what is drained. False:
 * no room was left. */
bool elastic_stop(struct rdzv *rdzv, const struct pass *pass);
/* In each step: gone nodes. */
void elastic_tick(struct rdzv *rdzv);

#endif
