/* The jobs that a job waits for, as its record has them: the first in fields of their own, the others as
 * text, "5-5:ok 7-9:any". The text is in `tail`: a job that waits has not run, so it has no last lines
 * of a failed rank, and a field of its own would cost the server 64 MB with JOBS_ACTIVE_MAX jobs. */
#ifndef RENDEZVOUS_CORE_AFTER_LIST_H
#define RENDEZVOUS_CORE_AFTER_LIST_H

#include "rendezvous/core/rdzv.h"

/* Count and items; the rest is left. False: the record is damaged. */
bool after_list_read(const struct rdzv_record *record, struct rdzv_after *after);
void after_list_write(const struct rdzv_after *after, struct rdzv_record *record);
/* It waits for none any more. */
void after_list_clear(struct rdzv_record *record);

#endif
