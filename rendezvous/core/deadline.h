/* Parts that are overdue (steps.h). A node that lets a step of a start pass has failed the job, by name and class
 * node: the job starts elsewhere. A stop that is not carried out is given up only if no rank can have begun; else
 * the job waits, since a rank may still run there, and its events say for which node. */
#ifndef RENDEZVOUS_CORE_DEADLINE_H
#define RENDEZVOUS_CORE_DEADLINE_H

#include "rendezvous/core/rdzv.h"

void deadline_tick(struct rdzv *rdzv);

#endif
