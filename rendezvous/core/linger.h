/* Ranks that may run on after their node was lost, of jobs that others wait for. What follows a job (--after), and the
 * limit of an array (--array ...%N), count such a job as running although its outcome is known: until its ranks must
 * have ended with their lease, or the node is back and lists none of them. A fence that the workers have of their own
 * (fence.h) is one against a second generation of the same job alone, so it does not matter here.
 *
 * The ended job stays in the table meanwhile. The store does not have this. It has the holds of the lost nodes
 * (rdzv_hold): while one of these is left after a restart of the server, followers of any ended job wait. */
#ifndef RENDEZVOUS_CORE_LINGER_H
#define RENDEZVOUS_CORE_LINGER_H

#include "rendezvous/core/job.h"
#include "rendezvous/core/roster.h"

/* Ranks of the job may run on `node` until then (NULL: on a node without an entry). */
void linger_note(struct rdzv *rdzv, struct job *job, const struct node *node, uint64_t until_us);
/* A server begins: it does not know where ranks of this job may run. */
void linger_restored(struct rdzv *rdzv, struct job *job, uint64_t until_us);
/* The job ends. If ranks of it may run on, its reason and an event say so. Before it counts as ended. */
void linger_end(struct rdzv *rdzv, struct job *job);
/* The node has listed its shims. */
void linger_heard(struct rdzv *rdzv, struct node *node);
/* Ends what is over, and wakes what has waited for it. */
void linger_tick(struct rdzv *rdzv);
/* The job has ended, and ranks of it may still run. */
static inline bool linger_has(const struct job *job)
{
    return job->ended && job->linger_until_us != 0;
}
/* A node on which ranks of jobs that ended before this server began may run; NULL: none. */
const struct node *linger_of_before(const struct rdzv *rdzv);
/* Where, "node n1", and until when: "until 12:34:56 UTC, or until n1 is back". `node`: its index; NODE_NONE: there are
 * several, or it is not known. */
void linger_where(const struct rdzv *rdzv, uint16_t node, char text[REASON_BYTES_MAX]);
void linger_until(const struct rdzv *rdzv, uint64_t until_us, uint16_t node,
                  char text[REASON_BYTES_MAX]);

#endif
