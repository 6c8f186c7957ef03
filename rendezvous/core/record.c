#include "rendezvous/core/record.h"

#include <assert.h>
#include <string.h>

bool rdzv_state_is_final(enum job_state state)
{
    return state == JOB_SUCCEEDED || state == JOB_FAILED || state == JOB_CANCELLED;
}

#define SHOW_KEPT(field)
#define SHOW_SHOWN(field) out->field = record->field;
#define SHOW(kind, field, column, audience, bytes) SHOW_##audience(field)

void rdzv_summary(const struct rdzv_record *record, struct part_job *out)
{
    memset(out, 0, sizeof *out);
    RDZV_RECORD_TABLE(SHOW)
    out->progress_generation = record->told_generation;
    out->ended = rdzv_state_is_final(record->state);
    if (record->part_count == 0 && !out->ended)
        out->where = ""; /* it is on no node now */
}

uint32_t rdzv_part_slot(const struct rdzv_part *part, uint32_t local_rank)
{
    uint64_t mask = part->slot_mask;

    assert(local_rank < SLOTS_PER_NODE_MAX);
    while (local_rank-- > 0)
        mask &= mask - 1;
    return mask != 0 ? (uint32_t)__builtin_ctzll(mask) : 0;
}
