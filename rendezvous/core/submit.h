/* Checks a job that a client submits, or the jobs of an array, and puts them into the queue. */
#ifndef RENDEZVOUS_CORE_SUBMIT_H
#define RENDEZVOUS_CORE_SUBMIT_H

#include "rendezvous/core/rdzv.h"

/* Handles RDZV_EVENT_SUBMIT. False: further jobs of the array follow in the next events, and
 * nothing else may happen before them. */
bool submit_take(struct rdzv *rdzv, const struct rdzv_event *event);

#endif
