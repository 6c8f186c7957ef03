/* Compares what nodes list and report with what should be there, and orders what closes the gap. */
#ifndef RENDEZVOUS_CORE_RECONCILE_H
#define RENDEZVOUS_CORE_RECONCILE_H

#include "rendezvous/core/roster.h"

/* A launcherd has said hello that may be another one than its parts were given to: what it does not
 * list is not gone. Call it before reconcile_list. */
void reconcile_unknown(struct rdzv *rdzv, struct node *node);
/* The node has sent its list of shims (hello, beat). */
/* What the beat says about shims that do not answer, for people. */
void reconcile_silent(struct rdzv *rdzv, struct node *node, const struct msg_beat *beat);
void reconcile_list(struct rdzv *rdzv, struct node *node);
/* The node has sent the report of one shim. */
void reconcile_report(struct rdzv *rdzv, struct node *node, const struct msg_shim_report *report);
/* Stops the jobs on a node that is leaving, so that they continue elsewhere. Called at every beat;
 * jobs for which there is no room follow at the next beat. */
void reconcile_leaving(struct rdzv *rdzv, const struct node *node);
/* Fails the parts on nodes that were lost. If there is too little room, the next steps continue. */
void reconcile_lost(struct rdzv *rdzv);

#endif
