/* Invariants of the core's tables, as assertions. A failed assertion is a bug in this folder. */
#ifndef RENDEZVOUS_CORE_CHECK_H
#define RENDEZVOUS_CORE_CHECK_H

#include "rendezvous/core/rdzv.h"

/* Called after every step: checks the counts and one job, another one each time. O(1). rdzv_check()
 * checks everything. */
void check_step(struct rdzv *rdzv);
/* What is wrong with a stored record, as text. NULL: it can be restored beside the jobs that are in
 * the table already. */
const char *check_record(const struct rdzv *rdzv, const struct rdzv_record *record);
/* Whether the list of jobs to wait for and the array fields are valid. If not, they may be dropped;
 * the rest of the record is still usable. */
bool check_after(const struct rdzv_record *record);
bool check_array(const struct rdzv_record *record);

#endif
