/* Warm spares: on a node that is held for a job (spares.h), processes of the job are started in advance and
 * wait for their ranks.
 *
 *   beat without the job   SEND_WARM, once for each connection of the node. The edge sends it only for
 *                          programs that can wait (rendezvous/server/warm.c), so it may have no effect
 *   beat with the job      its state is noted, for people
 *   ... which has no spare there   SEND_COOL, unless a part of the job is on the node: then its start order
 *                          has taken over the processes
 *
 * Nothing else depends on this, and none of it is stored. */
#ifndef RENDEZVOUS_CORE_WARM_H
#define RENDEZVOUS_CORE_WARM_H

#include "rendezvous/core/roster.h"

/* Call after roster_beat. */
void warm_heard(struct rdzv *rdzv, const struct node *node, const struct msg_beat *beat);

#endif
