#include "rendezvous/core/submit.h"

#include <stdio.h>
#include <string.h>

#include "common/stage.h"
#include "rendezvous/core/after_list.h"
#include "rendezvous/core/sched.h"
#include "rendezvous/core/state.h"

static uint32_t job_count_of(const struct rdzv_event *event)
{
    return event->array != NULL ? event->array->count : 1;
}

bool rdzv_has_more(const struct rdzv_event *event)
{
    return event->type == RDZV_EVENT_SUBMIT && event->array_place + 1 < job_count_of(event);
}

static uint32_t least_nodes(const struct msg_submit *request)
{
    return request->nodes_min > 0 ? request->nodes_min : request->nodes;
}

/* STATUS_TOO_BIG: there may be room later. STATUS_REFUSED: never. */
static enum status check_quota(const struct rdzv *rdzv, const struct rdzv_event *event,
                               char why[REASON_BYTES_MAX])
{
    const struct msg_submit *request = &event->msg->submit;
    uint32_t slots = least_nodes(request) * request->nproc_per_node;
    uint32_t max_queued = rdzv->options.max_queued_per_user;
    uint32_t max_slots = rdzv->options.max_slots_per_user;
    uint32_t user = users_find(rdzv, event->user), count = job_count_of(event);

    if (max_slots != 0 && slots > max_slots) {
        text_format(why,
                    "%u slots are more than a user may have at a time: %u (--max-slots-per-user "
                    "of the server)",
                    slots, max_slots);
        return STATUS_REFUSED;
    }
    if (max_queued != 0 && count > max_queued) {
        text_format(why,
                    "its %u jobs are more than may wait for a user at a time: %u "
                    "(--max-queued-per-user of the server): submit the array in parts",
                    count, max_queued);
        return STATUS_REFUSED;
    }
    if (max_queued == 0 || user == USER_NONE || rdzv->users[user].queued + count <= max_queued)
        return STATUS_OK;
    text_format(why,
                "%u jobs of %s wait already, a user may have %u (--max-queued-per-user of the "
                "server): submit again when some have started",
                rdzv->users[user].queued, event->user, max_queued);
    return STATUS_TOO_BIG;
}

static void tell_queue_full(const struct rdzv *rdzv, char why[REASON_BYTES_MAX])
{
    uint32_t most = 0;

    for (uint32_t i = 1; i < USERS_MAX; i++)
        if (rdzv->users[i].jobs > rdzv->users[most].jobs)
            most = i;
    text_format(why,
                "the queue is full: %u jobs wait or run, %u of them are of %s; submit again when "
                "some have ended",
                rdzv->job_count, rdzv->users[most].jobs, rdzv->users[most].name);
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* Beside its quota, a user may have half of what the store can take: however small its disk is, there is
 * room left for others. */
static bool stores_too_much(const struct rdzv *rdzv, const struct rdzv_event *event,
                            char why[REASON_BYTES_MAX])
{
    const struct rdzv_stored *stored = &event->stored;
    const uint64_t wanted = stored->has_bytes + stored->adds_bytes;
    const uint64_t most = rdzv->options.max_stored_per_user;

    if (stored->adds_bytes == 0)
        return false;
    if (most != 0 && wanted > most)
        text_format(
            why,
            "%s has %.1f MiB in the server's store and would have %.1f with this: a user may "
            "have %.1f (--max-stored-per-user of the server); ended jobs count for "
            "--keep-jobs",
            event->user, mib(stored->has_bytes), mib(wanted), mib(most));
    else if (stored->free_bytes != UINT64_MAX &&
             wanted + stored->adds_bytes > stored->free_bytes) /* over half of free + has */
        text_format(
            why,
            "the server's store has room for %.1f MiB more, and %s has %.1f: a user may have "
            "half of both together, and with this would have %.1f",
            mib(stored->free_bytes), event->user, mib(stored->has_bytes), mib(wanted));
    else
        return false;
    return true;
}

/* STATUS_OK, or the reason for refusing the job. */
static enum status check_submit(const struct rdzv *rdzv, const struct rdzv_event *event,
                                char why[REASON_BYTES_MAX])
{
    const struct msg_submit *request = &event->msg->submit;
    enum status status;

    if (request->nodes_min > request->nodes) {
        text_format(why, "at least %u nodes and at most %u cannot be", request->nodes_min,
                    request->nodes);
        return STATUS_BAD_INPUT;
    }
    if (request->replace_stragglers && request->spares == 0) {
        text_format(why, "--replace-stragglers needs a spare node: add --spares 1");
        return STATUS_BAD_INPUT;
    }
    if (request->requeue_at_limit && request->time_limit_us == 0) {
        text_format(why, "--requeue-at-limit needs a limit: add --time 8h");
        return STATUS_BAD_INPUT;
    }
    if (request->nodes * request->nproc_per_node > RANKS_PER_JOB_MAX) {
        text_format(why, "%u ranks are over the limit of %u for one job",
                    request->nodes * request->nproc_per_node, RANKS_PER_JOB_MAX);
        return STATUS_BAD_INPUT;
    }
    if (request->priority > 0 && !event->is_admin) {
        text_format(why, "a priority above 0 is for admins alone: ask for 0 or less, not %d",
                    request->priority);
        return STATUS_REFUSED;
    }
    status = check_quota(rdzv, event, why);
    if (status != STATUS_OK)
        return status;
    if (stores_too_much(rdzv, event, why))
        return STATUS_TOO_BIG;
    if (!request->wait_for_nodes &&
        !sched_is_possible(rdzv, least_nodes(request), request->nproc_per_node, why))
        return STATUS_UNSUPPORTED;
    if (rdzv->job_count + job_count_of(event) > rdzv->options.jobs_max) {
        tell_queue_full(rdzv, why);
        return STATUS_TOO_BIG;
    }
    return STATUS_OK;
}

/* Fills the fields of the record that stay as requested. */
static void fill(struct rdzv_record *record, const struct rdzv_event *event)
{
    const struct msg_submit *request = &event->msg->submit;

    record->nodes = request->nodes;
    record->nodes_max = request->nodes;
    record->nodes_min = least_nodes(request);
    record->spares = request->spares;
    record->replace_stragglers = request->replace_stragglers;
    record->hang_timeout_us = request->hang_timeout_us;
    record->warn_us = request->warn_us;
    record->warn_signal = request->warn_signal;
    after_list_write(&event->after, record);
    record->nproc_per_node = request->nproc_per_node;
    record->max_restarts = request->max_restarts;
    record->restarts_given = request->restarts_given;
    record->grace_us = request->grace_us;
    record->time_limit_us = request->time_limit_us;
    record->requeue_at_limit = request->requeue_at_limit;
    record->priority = request->priority;
    record->waits_for_nodes = request->wait_for_nodes;
    record->submitted_ms = event->wall_ms;
    record->uid = event->uid;
    (void)snprintf(record->name, sizeof record->name, "%s", request->name);
    (void)snprintf(record->user, sizeof record->user, "%s", event->user);
}

/* Fills the fields of an array. Only its first job has the request id. */
static void fill_array(struct rdzv_record *record, const struct rdzv_event *event)
{
    const struct array_spec *array = event->array;

    if (event->array_place == 0)
        (void)snprintf(record->request_id, sizeof record->request_id, "%s",
                       event->msg->submit.request_id);
    if (array == NULL)
        return;
    record->array_job = record->job_id - event->array_place;
    record->array_index = array->indices[event->array_place];
    record->array_count = array->count;
    record->array_min = array->indices[0];
    record->array_max = array->indices[array->count - 1];
    record->array_at_most = array->at_most;
}

static void log_submitted(struct rdzv *rdzv, const struct rdzv_event *event,
                          const struct rdzv_record *record)
{
    if (event->array == NULL)
        action_log(&rdzv->out, record->job_id, 0, "%s (%llu) was submitted by %s", record->name,
                   (unsigned long long)record->job_id, record->user);
    else
        action_log(&rdzv->out, record->job_id, 0, "%s (%llu_%u, of %u jobs) was submitted by %s",
                   record->name, (unsigned long long)record->array_job, record->array_index,
                   record->array_count, record->user);
}

static void add(struct rdzv *rdzv, const struct rdzv_event *event)
{
    struct job *job = job_add(rdzv, rdzv->next_job_id);
    struct rdzv_action *action;

    assert(job != NULL); /* check_submit made sure that all have room */
    rdzv->next_job_id++;
    fill(&job->record, event);
    fill_array(&job->record, event);
    job->has_no_stage = strncmp(event->msg->submit.cwd, STAGE_PREFIX, sizeof STAGE_PREFIX - 1) != 0;
    job->after_failed_id = event->after.failed_id;
    job->after_failed_state = event->after.failed_state;
    users_add(rdzv, job);
    spare_table_begin(rdzv, job);
    queue_add(rdzv, job);
    sched_newcomer(rdzv, job);
    job_set_dirty(rdzv, job);
    log_submitted(rdzv, event, &job->record);
    if (rdzv_has_more(event))
        return;
    action = action_add(&rdzv->out, RDZV_REPLY_SUBMITTED);
    action->client = event->client;
    action->job_id = job->record.array_job != 0 ? job->record.array_job : job->record.job_id;
}

bool submit_take(struct rdzv *rdzv, const struct rdzv_event *event)
{
    char why[REASON_BYTES_MAX];
    enum status status = event->array_place == 0 ? check_submit(rdzv, event, why) : STATUS_OK;

    if (status != STATUS_OK)
        action_reply_error(&rdzv->out, event->client, status, "%s", why);
    else
        add(rdzv, event);
    return status != STATUS_OK || !rdzv_has_more(event);
}
