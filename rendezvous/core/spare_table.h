/* The table of spares (--spares): which slots of which node are held for which job. spares.h has
 * the rules. A spare is nproc_per_node slots on one node. It belongs to one job and counts as slots
 * of the job's user. */
#ifndef RENDEZVOUS_CORE_SPARE_TABLE_H
#define RENDEZVOUS_CORE_SPARE_TABLE_H

#include <assert.h>

#include "rendezvous/core/job.h"

struct node_spare {
    uint64_t slot_mask;
    uint32_t job : 24;  /* index into rdzv->jobs */
    uint32_t state : 8; /* enum warm_state of its processes, as reported; STARTING: none reported */
    uint32_t
        asked_conn; /* low bits of the connection on which the node was asked to warm it (warm.h) */
};
/* Each node has room for SLOTS_PER_NODE_MAX of them. */
static_assert(sizeof(struct node_spare) == 16 && JOBS_ACTIVE_MAX < 1u << 24, "a small table");
/* The spares of one node: at most one for each slot. */
struct node_spares {
    uint32_t count;
    struct node_spare items[SLOTS_PER_NODE_MAX];
};

/* The job begins or stops to want spares. When it stops, its spares are released. */
void spare_table_begin(struct rdzv *rdzv, struct job *job);
void spare_table_end(struct rdzv *rdzv, struct job *job);

void spare_table_add(struct rdzv *rdzv, struct job *job, uint32_t node, uint64_t slot_mask);
/* False: the job had no spare there. */
bool spare_table_remove(struct rdzv *rdzv, struct job *job, uint32_t node);
void spare_table_remove_all(struct rdzv *rdzv, struct job *job);
/* The slots of a node that are held for anybody; for that job. */
uint64_t spare_table_mask(const struct rdzv *rdzv, uint32_t node);
uint64_t spare_table_mask_of(const struct rdzv *rdzv, uint32_t node, const struct job *job);
/* One more spare of the job is warm, or one less. */
void spare_table_count_warm(struct job *job, bool is_warm);
/* The slots of the job's spare on the node that could be used at once. */
uint64_t spare_table_ready(const struct rdzv *rdzv, uint32_t node, const struct job *job);

#endif
