#include "launcherd/core/launcher_seen.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "launcherd/core/launcher_actions.h"

/* The place of the cluster in the record, moved to the front: the one that is forgotten is the one whose last order is
 * oldest. */
static struct seen_job *move_to_front(struct seen_record *seen, const char *cluster)
{
    struct seen_job job = {.job_id = 0};
    uint32_t at = 0;

    while (at < seen->count && strcmp(seen->jobs[at].cluster, cluster) != 0)
        at++;
    if (at < seen->count)
        job = seen->jobs[at];
    else if (seen->count < CLUSTERS_SEEN_MAX)
        seen->count++;
    if (at >= CLUSTERS_SEEN_MAX)
        at = CLUSTERS_SEEN_MAX - 1;
    memmove(&seen->jobs[1], &seen->jobs[0], at * sizeof job);
    seen->jobs[0] = job;
    (void)snprintf(seen->jobs[0].cluster, sizeof seen->jobs[0].cluster, "%s", cluster);
    return &seen->jobs[0];
}

bool launcher_seen_has(const struct launcher *launcher, const char *cluster, uint64_t job_id,
                       uint32_t generation)
{
    for (uint32_t i = 0; i < launcher->seen.count; i++) {
        const struct seen_job *job = &launcher->seen.jobs[i];

        if (strcmp(job->cluster, cluster) == 0)
            return job->job_id == job_id && generation <= job->generation;
    }
    return false;
}

void launcher_seen_note(struct launcher *launcher, const char *cluster, uint64_t job_id,
                        uint32_t generation, struct launcher_actions *actions)
{
    struct seen_record *seen = &launcher->seen;
    const bool was_first = seen->count > 0 && strcmp(seen->jobs[0].cluster, cluster) == 0;
    struct seen_job *job;
    bool is_newer;

    assert(job_id != 0);
    if (cluster[0] == '\0')
        return;
    job = move_to_front(seen, cluster);
    is_newer = job_id > job->job_id || (job_id == job->job_id && generation > job->generation);
    if (launcher->lease_us != 0 && strcmp(launcher->cluster, cluster) == 0)
        job->lease_us = launcher->lease_us;
    if (!is_newer && was_first)
        return;
    if (is_newer) {
        job->job_id = job_id;
        job->generation = generation;
    }
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_SAVE_SEEN, .seen = seen});
}

void launcher_seen_lease(struct launcher *launcher, struct launcher_actions *actions)
{
    struct seen_record *seen = &launcher->seen;

    for (uint32_t i = 0; i < seen->count; i++) {
        if (strcmp(seen->jobs[i].cluster, launcher->cluster) != 0 ||
            seen->jobs[i].lease_us == launcher->lease_us)
            continue;
        seen->jobs[i].lease_us = launcher->lease_us;
        launcher_add(actions, (struct launcher_action){.type = LAUNCHER_SAVE_SEEN, .seen = seen});
    }
}

uint32_t launcher_seen_list(const struct launcher *launcher, struct part_cluster_seen *out)
{
    for (uint32_t i = 0; i < launcher->seen.count; i++)
        out[i] = (struct part_cluster_seen){.cluster = launcher->seen.jobs[i].cluster,
                                            .job_id = launcher->seen.jobs[i].job_id,
                                            .generation = launcher->seen.jobs[i].generation,
                                            .lease_us = launcher->seen.jobs[i].lease_us};
    return launcher->seen.count;
}
