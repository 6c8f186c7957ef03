/* Orders to nodes. A generation owes them; they leave at the end of the step, after everything was
 * published, or in the next steps when there is no room. One that its node cannot be given now is
 * dropped: the node's next list shows the difference, and it is owed again. */
#ifndef RENDEZVOUS_CORE_ORDERS_H
#define RENDEZVOUS_CORE_ORDERS_H

#include "rendezvous/core/job.h"

void orders_owe(struct rdzv *rdzv, struct job *job, uint32_t part, enum order order);
/* No order of these kinds is owed any more. */
void orders_cancel(struct job *job, enum order first, enum order last);
void orders_send(struct rdzv *rdzv);

#endif
