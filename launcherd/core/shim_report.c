#include "launcherd/core/shim.h"

void shim_report(const struct shim *shim, uint64_t now_us, struct part_report_rank *ranks,
                 struct msg_shim_report *report)
{
    uint64_t age_us = shim->has_failed ? now_us - shim->failed_at_us : 0;

    *report = (struct msg_shim_report){
        .job_id = shim->options.job_id,
        .generation = shim->options.generation,
        .revision = shim->revision,
        .phase = shim->phase,
        .master_port = shim->master_port,
        .blob = shim->blob,
        .has_world = shim->has_world,
        .failed_rank = shim->failed_rank,
        .failed_age_us = age_us < DURATION_US_MAX ? age_us : DURATION_US_MAX,
        .failed_errno_exit = (int32_t)shim->failed_errno_exit,
        .failed_class = shim->failed_class,
        .failed_by_peer = shim->failed_by_peer,
        .cause = shim->cause,
        .tail = "",
        .error = "",
        .failed_core = "",
        .warm_late = shim->warm_late,
        .notice = shim->notice[0] != '\0' ? shim->notice : shim->lost,
    };
    for (uint32_t i = 0; i < shim->options.local_count; i++) {
        const struct shim_rank *rank = &shim->ranks[i];
        ranks[i] = (struct part_report_rank){
            .rank = shim->options.rank_base + i,
            .state = rank->state,
            .pid = rank->pid,
            .exit_code = rank->exit_code,
            .signal = rank->signal,
            .joined = rank->joined,
        };
    }
    report->ranks.items = ranks;
    report->ranks.count = shim->options.local_count;
}
