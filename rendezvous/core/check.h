/* Invariants of the core's tables, as assertions: what does not hold is a mistake in this folder. */
#ifndef RENDEZVOUS_CORE_CHECK_H
#define RENDEZVOUS_CORE_CHECK_H

#include "rendezvous/core/rdzv.h"

/* After a step: counts, and one job, a different one each time. O(1). All of them: rdzv_check(). */
void check_step(struct rdzv *rdzv);
/* What is wrong with a record that was stored, as text; NULL: it can be restored beside the jobs
 * that are there already. */
const char *check_record(const struct rdzv *rdzv, const struct rdzv_record *record);
/* What of a record may be dropped where it is wrong: what it waits for, and its array. */
bool check_after(const struct rdzv_record *record);
bool check_array(const struct rdzv_record *record);

#endif
