/* Requests of operators: drain a node or some of its slots, and resume them. */
#ifndef RENDEZVOUS_CORE_DRAINS_H
#define RENDEZVOUS_CORE_DRAINS_H

#include "rendezvous/core/rdzv.h"

void drains_on_restore(struct rdzv *rdzv, const struct rdzv_drain *drain);
void drains_on_drain(struct rdzv *rdzv, const struct rdzv_event *event);
void drains_on_resume(struct rdzv *rdzv, const struct rdzv_event *event);

#endif
