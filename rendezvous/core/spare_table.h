/* Which slots of which node are held as spares, for whom (--spares). The table alone: spares.h has the
 * rules. A spare is nproc_per_node slots of one node. It belongs to one job, and counts among the slots of
 * its user. */
#ifndef RENDEZVOUS_CORE_SPARE_TABLE_H
#define RENDEZVOUS_CORE_SPARE_TABLE_H

#include <assert.h>

#include "rendezvous/core/job.h"

struct node_spare {
    uint64_t slot_mask;
    uint32_t job : 24;  /* index into rdzv->jobs */
    uint32_t state : 8; /* enum warm_state: of its processes there, as told; STARTING: nothing */
    uint32_t
        asked_conn; /* of the node, its low bits: on which it was asked to warm it. See warm.h */
};
/* There is room for SLOTS_PER_NODE_MAX of them on each node. */
static_assert(sizeof(struct node_spare) == 16 && JOBS_ACTIVE_MAX < 1u << 24, "a small table");
/* Of one node: one for each slot at most. */
struct node_spares {
    uint32_t count;
    struct node_spare items[SLOTS_PER_NODE_MAX];
};

/* The job is one that spares are sought for, or is no longer; then it has none. */
void spare_table_begin(struct rdzv *rdzv, struct job *job);
void spare_table_end(struct rdzv *rdzv, struct job *job);

void spare_table_add(struct rdzv *rdzv, struct job *job, uint32_t node, uint64_t slot_mask);
/* False: it had none there. */
bool spare_table_remove(struct rdzv *rdzv, struct job *job, uint32_t node);
void spare_table_remove_all(struct rdzv *rdzv, struct job *job);
/* Held on a node, for anybody; for that job. */
uint64_t spare_table_mask(const struct rdzv *rdzv, uint32_t node);
uint64_t spare_table_mask_of(const struct rdzv *rdzv, uint32_t node, const struct job *job);
/* One spare more is warm, or one less. */
void spare_table_count_warm(struct job *job, bool is_warm);
/* What of it could be used at once. */
uint64_t spare_table_ready(const struct rdzv *rdzv, uint32_t node, const struct job *job);

#endif
