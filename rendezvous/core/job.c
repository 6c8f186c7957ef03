#include "rendezvous/core/job.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/core/actions.h"
#include "rendezvous/core/state.h"

struct job *job_at(const struct rdzv *rdzv, uint32_t index)
{
    assert(index < rdzv->job_count);
    return &rdzv->jobs[rdzv->order[index].job];
}

uint32_t job_index_from(const struct rdzv *rdzv, uint64_t job_id)
{
    uint32_t low = 0, high = rdzv->job_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (rdzv->order[middle].job_id < job_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct job *job_find(const struct rdzv *rdzv, uint64_t job_id)
{
    uint32_t at = job_index_from(rdzv, job_id);

    return at < rdzv->job_count && rdzv->order[at].job_id == job_id ? job_at(rdzv, at) : NULL;
}

static struct job *add_within(struct rdzv *rdzv, uint64_t job_id, uint32_t entries)
{
    struct job *job;

    assert(job_id > 0);
    assert(rdzv->job_count == 0 || rdzv->order[rdzv->job_count - 1].job_id < job_id);
    if (rdzv->job_count >= entries)
        return NULL;
    job =
        &rdzv->jobs[rdzv->free_count > 0 ? rdzv->free_jobs[--rdzv->free_count] : rdzv->job_high++];
    assert(!job->used);
    memset(job, 0, sizeof *job);
    job->used = true;
    job->version = 1;
    job->limit_at_us = UINT64_MAX;
    job->running_at_us = UINT64_MAX;
    job->record.job_id = job_id;
    job->record.failed_rank = -1;
    job->user = USER_NONE;
    rdzv->order[rdzv->job_count++] = (struct job_key){job_id, (uint32_t)(job - rdzv->jobs)};
    job_live_add(rdzv, job);
    return job;
}

struct job *job_add(struct rdzv *rdzv, uint64_t job_id)
{
    return add_within(rdzv, job_id, rdzv->options.jobs_max);
}

struct job *job_add_refused(struct rdzv *rdzv, uint64_t job_id)
{
    struct job *job = add_within(rdzv, job_id, rdzv->options.jobs_max + 1);

    assert(job != NULL); /* the one before was dropped when this step began */
    return job;
}

struct job *job_live(const struct rdzv *rdzv, uint32_t index)
{
    assert(index < rdzv->live_count);
    return &rdzv->jobs[rdzv->live[index]];
}

void job_live_add(struct rdzv *rdzv, struct job *job)
{
    job->live_index = rdzv->live_count++;
    rdzv->live[job->live_index] = (uint32_t)(job - rdzv->jobs);
}

void job_live_remove(struct rdzv *rdzv, struct job *job)
{
    uint32_t last = rdzv->live[--rdzv->live_count];

    rdzv->live[job->live_index] = last;
    rdzv->jobs[last].live_index = job->live_index;
}

/* Frees the ended gangs of all jobs that this step has not changed: those of changed jobs are still
 * to be stored. */
static void give_up_ended(struct rdzv *rdzv)
{
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        struct job *job = job_at(rdzv, i);

        if (!job->dirty && !job->changed)
            gang_free(&rdzv->blocks, &job->last);
    }
}

bool job_gang_new(struct rdzv *rdzv, struct gang *gang, uint32_t part_count, uint32_t world)
{
    if (gang_new(&rdzv->blocks, gang, part_count, world))
        return true;
    give_up_ended(rdzv);
    return gang_new(&rdzv->blocks, gang, part_count, world);
}

static void drop(struct rdzv *rdzv, struct job *job)
{
    uint32_t at = job_index_from(rdzv, job->record.job_id);

    assert(job_at(rdzv, at) == job);
    users_remove(rdzv, job);
    job_live_remove(rdzv, job);
    rdzv->job_count--;
    memmove(&rdzv->order[at], &rdzv->order[at + 1], (rdzv->job_count - at) * sizeof *rdzv->order);
    rdzv->free_jobs[rdzv->free_count++] = (uint32_t)(job - rdzv->jobs);
    rdzv->ended_count--;
    assert(job->gang.part_count == 0); /* its generation has ended */
    gang_free(&rdzv->blocks, &job->last);
    job->used = false;
}

void jobs_drop_ended(struct rdzv *rdzv)
{
    for (uint32_t i = rdzv->live_count; rdzv->ended_count > rdzv->linger_count && i-- > 0;) {
        struct job *job = job_live(rdzv, i);

        if (job->ended && job->is_announced && !job->is_owing && job->linger_until_us == 0)
            drop(rdzv, job);
    }
}

/* The first change of a job in a step reserves room for the actions that publish it. */
static void touch(struct rdzv *rdzv, struct job *job)
{
    if (job->dirty || job->changed)
        return;
    actions_reserve(&rdzv->out, PUBLISH_ACTIONS);
    rdzv->touched[rdzv->touched_count++] = (uint32_t)(job - rdzv->jobs);
}

void job_set_dirty(struct rdzv *rdzv, struct job *job)
{
    touch(rdzv, job);
    job->dirty = true;
}

void job_set_changed(struct rdzv *rdzv, struct job *job)
{
    touch(rdzv, job);
    job->changed = true;
}

const char *job_title(const struct job *other, const struct job *reader,
                      char title[JOB_TITLE_BYTES])
{
    const bool is_own = strcmp(other->record.user, reader->record.user) == 0;

    (void)snprintf(title, JOB_TITLE_BYTES, "job %llu%s%s%s",
                   (unsigned long long)other->record.job_id, is_own ? " (" : "",
                   is_own ? other->record.name : "", is_own ? ")" : "");
    return title;
}

void job_log(struct rdzv *rdzv, const struct job *job, const char *text)
{
    action_log(&rdzv->out, job->record.job_id, job->record.generation, "%s", text);
}

void job_set_state(struct rdzv *rdzv, struct job *job, enum job_state state)
{
    bool is_explained;

    assert(!job->ended || rdzv_state_is_final(state));
    if (job->record.state == state)
        return;
    job->record.state = state;
    rdzv->sched_due = true;
    users_count(rdzv, job);
    job_set_dirty(rdzv, job);
    /* Where nobody asked for the cancel, only the reason tells why. */
    is_explained = state == JOB_CANCELLED && !job->record.cancel_wanted;
    action_log(&rdzv->out, job->record.job_id, job->record.generation,
               "%s (%llu) is %s, generation %u%s%s", job->record.name,
               (unsigned long long)job->record.job_id, job_state_name(state),
               job->record.generation, is_explained ? ": " : "",
               is_explained ? job->record.reason : "");
}

void job_set_reason(struct rdzv *rdzv, struct job *job, const char *text)
{
    if (strcmp(job->record.reason, text) == 0)
        return;
    (void)snprintf(job->record.reason, sizeof job->record.reason, "%s", text);
    job_set_changed(rdzv, job);
}

static void publish(struct rdzv *rdzv, struct job *job)
{
    actions_release(&rdzv->out, PUBLISH_ACTIONS);
    if (job->dirty)
        action_add(&rdzv->out, RDZV_PERSIST)->job_id = job->record.job_id;
    if (job->note.is_dirty) {
        struct rdzv_action *action = action_add(&rdzv->out, RDZV_PERSIST_FAILURE);

        action->job_id = job->record.job_id;
        action->generation = job->note.failure.generation;
    }
    job->note.is_dirty = false;
    job->version++;
    action_add(&rdzv->out, RDZV_JOB_CHANGED)->job_id = job->record.job_id;
    if (job->ended && !job->is_announced) {
        action_add(&rdzv->out, RDZV_JOB_ENDED)->job_id = job->record.job_id;
        job->is_announced = true;
    }
    job->dirty = false;
    job->changed = false;
}

void jobs_publish(struct rdzv *rdzv)
{
    for (uint32_t i = 0; i < rdzv->touched_count; i++)
        publish(rdzv, &rdzv->jobs[rdzv->touched[i]]);
    rdzv->touched_count = 0;
    assert(rdzv->out.reserved == 0);
}

void job_skip_seen(struct job *job)
{
    if (job->seen_generation > job->record.generation)
        job->record.generation = job->record.restarts = job->seen_generation;
    job->seen_generation = 0;
}
