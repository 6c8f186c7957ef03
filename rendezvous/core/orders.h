/* Orders to nodes. A generation keeps a set of orders that it owes; they leave at the end of the
 * step, after everything has been published, or in the next steps if there is no room. An order to
 * a node that cannot be reached is dropped: the node's next list shows the difference, and the
 * order is owed again. */
#ifndef RENDEZVOUS_CORE_ORDERS_H
#define RENDEZVOUS_CORE_ORDERS_H

#include "rendezvous/core/job.h"

void orders_owe(struct rdzv *rdzv, struct job *job, uint32_t part, enum order order);
/* Drops all owed orders of these kinds. */
void orders_cancel(struct job *job, enum order first, enum order last);
void orders_send(struct rdzv *rdzv);

#endif
