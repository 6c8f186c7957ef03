/* What nodes list and report against what should be; what closes the gap. */
#ifndef RENDEZVOUS_CORE_RECONCILE_H
#define RENDEZVOUS_CORE_RECONCILE_H

#include "rendezvous/core/roster.h"

/* The node has sent its list of shims (hello, beat). */
void reconcile_list(struct rdzv *rdzv, struct node *node);
/* The node has sent the report of one shim. */
void reconcile_report(struct rdzv *rdzv, struct node *node, const struct msg_shim_report *report);
/* Stops the jobs on a node that leaves, so that they go on elsewhere. At every beat: what finds no room
 * comes with the next one. */
void reconcile_leaving(struct rdzv *rdzv, const struct node *node);
/* Fails what runs on nodes that were lost; with too little room, the rest in the next steps. */
void reconcile_lost(struct rdzv *rdzv);

#endif
