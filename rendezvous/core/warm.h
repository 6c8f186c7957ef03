/* Warm spares: a node that is held for a job (spares.h) keeps processes of it that wait for their place.
 *
 *   beat without the job   SEND_WARM, once for each connection of the node: it is a wish. The edge sends it
 *                          for programs that can wait (rendezvous/server/warm.c)
 *   beat with the job      how far they are is noted, for people
 *   ... that is no spare   SEND_COOL, unless a part of the job is on the node: its start order has taken them
 *
 * Nothing else depends on it, and nothing of it is stored. */
#ifndef RENDEZVOUS_CORE_WARM_H
#define RENDEZVOUS_CORE_WARM_H

#include "rendezvous/core/roster.h"

/* After roster_beat. */
void warm_heard(struct rdzv *rdzv, const struct node *node, const struct msg_beat *beat);

#endif
