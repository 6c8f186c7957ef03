#include "launcherd/core/launcher_report.h"

#include <assert.h>
#include <string.h>

#include "launcherd/core/launcher_table.h"

static void list_ranks(const struct launcher_shim *shim, struct part_report_rank *ranks)
{
    if (shim->end.is_known) {
        memcpy(ranks, shim->end.ranks, shim->end.rank_count * sizeof ranks[0]);
        return;
    }
    for (uint32_t i = 0; i < shim->local_count; i++)
        ranks[i] = (struct part_report_rank){.rank = shim->rank_base + i, .state = RANK_LOST};
}

void launcher_report_dead(struct launcher_actions *actions, const struct launcher_shim *shim,
                          uint64_t now_us)
{
    assert(shim->dead && shim->revision == LAUNCHER_REVISION_LAST);
    assert(shim->local_count <= SLOTS_PER_NODE_MAX && shim->end.rank_count <= SLOTS_PER_NODE_MAX);
    assert(actions->rank_rows < LAUNCHER_REPORTS_MAX);
    struct part_report_rank *ranks = actions->ranks[actions->rank_rows++];
    uint64_t at_us = shim->end.is_known ? shim->end.failed_at_us : shim->gone_at_us;
    uint64_t age_us = now_us > at_us ? now_us - at_us : 0;

    list_ranks(shim, ranks);
    struct msg_shim_report *report =
        &launcher_send_server(actions, MSG_TYPE_SHIM_REPORT)->shim_report;
    *report = (struct msg_shim_report){
        .job_id = shim->job_id,
        .generation = shim->generation,
        .revision = shim->revision,
        .phase = SHIM_ENDED,
        .failed_rank = shim->end.is_known ? shim->end.failed_rank : -1,
        .failed_age_us = age_us < DURATION_US_MAX ? age_us : DURATION_US_MAX,
        .failed_errno_exit = shim->end.is_known ? shim->end.failed_errno_exit : 0,
        .failed_class = shim->end.is_known ? shim->end.failed_class : FAILURE_NODE,
        .cause = shim->cause,
        .tail = shim->end.is_known ? shim->end.tail : "",
        .error = shim->end.is_known ? shim->end.error : "",
        .failed_oom = shim->end.is_known && shim->end.failed_oom,
        .failed_by_peer = shim->end.is_known && shim->end.failed_by_peer,
        .failed_core = shim->end.is_known ? shim->end.failed_core : "",
        .warm_late = shim->warm_late,
        .notice = shim->end.is_known ? shim->end.notice : "",
    };
    report->ranks.items = ranks;
    report->ranks.count = shim->end.is_known ? shim->end.rank_count : shim->local_count;
}

void launcher_report_absent(struct launcher_actions *actions, uint64_t job_id, uint32_t generation,
                            const char *cause)
{
    launcher_send_server(actions, MSG_TYPE_SHIM_REPORT)->shim_report = (struct msg_shim_report){
        .job_id = job_id,
        .generation = generation,
        .revision = LAUNCHER_REVISION_LAST,
        .phase = SHIM_ENDED,
        .failed_rank = -1,
        .failed_class = FAILURE_NODE,
        .cause = cause,
        .tail = "",
        .error = "",
        .failed_core = "",
        .notice = "",
    };
}
