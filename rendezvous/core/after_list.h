/* The list of jobs that a job waits for, as its record stores it. The first entry has fields of its
 * own; the others are text, "5-5:ok 7-9:any", in the field `tail`. A waiting job has not run, so
 * `tail` (the last output of a failed rank) is free. A field of its own would cost the server 64 MB
 * with JOBS_ACTIVE_MAX jobs. */
#ifndef RENDEZVOUS_CORE_AFTER_LIST_H
#define RENDEZVOUS_CORE_AFTER_LIST_H

#include "rendezvous/core/rdzv.h"

/* Fills count and items of `after`, and leaves its other fields. False: the record is damaged. */
bool after_list_read(const struct rdzv_record *record, struct rdzv_after *after);
void after_list_write(const struct rdzv_after *after, struct rdzv_record *record);
/* The job waits for no other job any more. */
void after_list_clear(struct rdzv_record *record);

#endif
