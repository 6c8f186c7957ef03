#include <assert.h>
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "ddpctl/json_parts.h"
#include "ddpctl/output.h"
#include "ddpctl/units.h"

static void add_texts(cJSON *object, const char *name, const struct msg_text_list *texts)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);

    for (uint32_t i = 0; i < texts->count; i++)
        (void)cJSON_AddItemToArray(array, cJSON_CreateString(texts->items[i]));
}

static void add_exit(cJSON *object, const struct part_job *job)
{
    cJSON *exit;

    if (!job->ended) {
        (void)cJSON_AddNullToObject(object, "exit");
        return;
    }
    exit = cJSON_AddObjectToObject(object, "exit");
    add_number(exit, "code", job->exit_code);
    add_signal(exit, job->signal);
    (void)cJSON_AddStringToObject(exit, "source", job->exit_is_ours ? "ddpctl" : "job");
}

static void add_progress(cJSON *object, const struct part_job *job)
{
    cJSON *progress = cJSON_AddObjectToObject(object, "progress");
    bool is_known = job->step > 0 || job->epoch > 0 || job->samples_per_s > 0;

    add_known(progress, "epoch", job->epoch, is_known);
    add_known(progress, "epochs", job->epochs, job->epochs > 0);
    add_known(progress, "step", (double)job->step, is_known);
    add_known(progress, "steps", (double)job->steps, job->steps > 0);
    add_known(progress, "loss", job->loss, is_known);
    add_known(progress, "samples_per_s", job->samples_per_s, is_known);
    add_known(progress, "generation", job->progress_generation,
              is_known && job->progress_generation > 0);
    add_known(progress, "checkpoint_step", (double)job->checkpoint_step, job->checkpoint_step > 0);
}

/* The fields of a job that `ps` and `status` share. */
static void add_job(cJSON *object, const struct part_job *job)
{
    cJSON *array;

    add_number(object, "id", (double)job->job_id);
    (void)cJSON_AddStringToObject(object, "name", job->name);
    (void)cJSON_AddStringToObject(object, "user", job->user);
    (void)cJSON_AddStringToObject(object, "state", job_state_name(job->state));
    add_number(object, "generation", job->generation);
    add_number(object, "restarts", job->restarts);
    add_number(object, "max_restarts", job->max_restarts);
    add_number(object, "restarts_used", job->restarts_without_progress);
    add_number(object, "nodes", job->nodes);
    add_number(object, "nodes_min", job->nodes_min > 0 ? job->nodes_min : job->nodes);
    add_number(object, "nodes_max", job->nodes_max > 0 ? job->nodes_max : job->nodes);
    add_number(object, "nproc_per_node", job->nproc_per_node);
    add_number(object, "world_size", (double)job->nodes * job->nproc_per_node);
    add_number(object, "ranks_running", job->ranks_running);
    add_text(object, "where", job->where);
    add_text(object, "reason", job->reason);
    add_exit(object, job);
    add_time(object, "submitted_at", job->submitted_ms);
    add_time(object, "started_at", job->started_ms);
    add_time(object, "ended_at", job->ended_ms);
    add_progress(object, job);
    if (job->array_job != 0) {
        array = cJSON_AddObjectToObject(object, "array");
        add_number(array, "job", (double)job->array_job);
        add_number(array, "index", job->array_index);
        add_number(array, "count", job->array_count);
    }
    if (job->straggler[0] != '\0')
        add_text(object, "straggler", job->straggler);
    if (job->spares > 0) {
        add_number(object, "spares", job->spares);
        add_number(object, "spares_held", job->spares_held);
        add_number(object, "spares_warm", job->spares_warm);
    }
}

void output_add_job(cJSON *object, const struct part_job *job)
{
    add_job(object, job);
}

static void add_ranks(cJSON *object, const struct msg_job_info *info)
{
    cJSON *array = cJSON_AddArrayToObject(object, "ranks");

    for (uint32_t i = 0; i < info->ranks.count; i++) {
        const struct part_job_rank *rank = &info->ranks.items[i];
        bool has_ended = rank->state == RANK_EXITED || rank->state == RANK_STOPPED;
        cJSON *item = cJSON_CreateObject();

        add_number(item, "rank", rank->rank);
        add_number(item, "local_rank", rank->local_rank);
        add_text(item, "node", rank->node);
        add_known(item, "pid", rank->pid, rank->pid > 0);
        add_number(item, "slot", rank->slot);
        (void)cJSON_AddStringToObject(item, "state", rank_state_name(rank->state));
        add_known(item, "exit_code", rank->exit_code, has_ended && rank->signal == 0);
        add_known(item, "signal", rank->signal, has_ended && rank->signal > 0);
        (void)cJSON_AddItemToArray(array, item);
    }
}

static void add_failed(cJSON *object, const struct msg_job_info *info)
{
    cJSON *failed;

    if (info->failed_rank < 0) {
        (void)cJSON_AddNullToObject(object, "failed");
        return;
    }
    failed = cJSON_AddObjectToObject(object, "failed");
    add_number(failed, "rank", info->failed_rank);
    add_text(failed, "node", info->failed_node);
    (void)cJSON_AddStringToObject(failed, "tail", info->tail);
}

static void add_job_info(cJSON *object, const struct msg_job_info *info)
{
    cJSON *job = cJSON_AddObjectToObject(object, "job");

    add_job(job, &info->jobs.items[0]);
    add_ranks(job, info);
    add_failed(job, info);
    add_texts(job, "argv", &info->argv);
    add_text(job, "cwd", info->cwd);
}

void output_status_json(const struct msg_job_info *info, struct buf *out)
{
    cJSON *object = object_new();

    assert(info->jobs.count == 1);
    add_job_info(object, info);
    object_print(object, out);
}

void output_jobs_json(const struct msg_jobs *jobs, struct buf *out)
{
    cJSON *object = object_new(), *array = cJSON_AddArrayToObject(object, "jobs");

    for (uint32_t i = 0; i < jobs->jobs.count; i++) {
        cJSON *item = cJSON_CreateObject();

        add_job(item, &jobs->jobs.items[i]);
        (void)cJSON_AddItemToArray(array, item);
    }
    object_print(object, out);
}

static void add_drained(cJSON *object, const struct part_node *node)
{
    cJSON *drained;

    if (!node->drained) {
        (void)cJSON_AddNullToObject(object, "drained");
        return;
    }
    drained = cJSON_AddObjectToObject(object, "drained");
    add_text(drained, "by", node->drained_by);
    add_text(drained, "reason", node->drain_reason);
    add_time(drained, "at", node->drained_ms);
}

/* Adds the slots of this node. */
static void add_slots(cJSON *object, const char *name, const struct msg_nodes *nodes,
                      const struct part_node *node)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);

    for (uint32_t i = 0; i < nodes->slots.count; i++) {
        const struct part_slot *slot = &nodes->slots.items[i];
        cJSON *item;

        if (strcmp(slot->node, node->name) != 0)
            continue;
        item = cJSON_CreateObject();
        add_number(item, "slot", slot->slot);
        (void)cJSON_AddStringToObject(item, "state", slot_state_name(slot->state));
        add_known(item, "job_id", (double)slot->job_id, slot->job_id > 0);
        add_known(item, "generation", slot->generation, slot->job_id > 0);
        add_text(item, "reason", slot->reason);
        add_text(item, "drained_by", slot->drained_by);
        add_time(item, "since", slot->since_ms);
        (void)cJSON_AddItemToArray(array, item);
    }
}

void output_add_node(cJSON *item, const struct part_node *node)
{
    (void)cJSON_AddStringToObject(item, "name", node->name);
    (void)cJSON_AddStringToObject(item, "state", node_state_name(node->state));
    add_text(item, "address", node->address);
    add_number(item, "slots", node->slots);
    add_number(item, "slots_free", node->slots_free);
    add_number(item, "slots_closed", node->slots_closed);
    add_number(item, "gpus", node->gpus);
    add_drained(item, node);
    add_known(item, "pid", node->pid, node->pid > 0);
    add_text(item, "version", node->version);
    add_known(item, "protocol", node->protocol, node->protocol > 0);
    cJSON_AddBoolToObject(item, "drains_on_term", node->drains_on_term);
    add_known(item, "seen_s_ago", (double)node->beat_age_us / 1e6, node->beat_age_us >= 0);
    add_number(item, "reconnects", node->reconnects);
    add_text(item, "notice", node->notice);
    add_time(item, "refused_since", node->refused_ms);
}

void output_nodes_json(const struct msg_nodes *nodes, struct buf *out)
{
    cJSON *object = object_new(), *array = cJSON_AddArrayToObject(object, "nodes");

    for (uint32_t i = 0; i < nodes->nodes.count; i++) {
        cJSON *item = cJSON_CreateObject();

        output_add_node(item, &nodes->nodes.items[i]);
        add_slots(item, "closed_slots", nodes, &nodes->nodes.items[i]);
        (void)cJSON_AddItemToArray(array, item);
    }
    object_print(object, out);
}

void output_node_json(const struct msg_nodes *nodes, struct buf *out)
{
    cJSON *object = object_new(), *item = cJSON_AddObjectToObject(object, "node");

    assert(nodes->nodes.count == 1);
    output_add_node(item, &nodes->nodes.items[0]);
    add_slots(item, "slot_list", nodes, &nodes->nodes.items[0]);
    object_print(object, out);
}

static void add_event(cJSON *object, const struct part_event *event)
{
    add_number(object, "id", (double)event->id);
    add_time(object, "at", event->at_ms);
    add_known(object, "job_id", (double)event->job_id, event->job_id > 0);
    add_known(object, "generation", event->generation, event->generation > 0);
    (void)cJSON_AddStringToObject(object, "text", event->text);
}

void output_events_json(const struct msg_events *events, struct buf *out)
{
    cJSON *object = object_new(), *array = cJSON_AddArrayToObject(object, "events");

    for (uint32_t i = 0; i < events->events.count; i++) {
        cJSON *item = cJSON_CreateObject();

        add_event(item, &events->events.items[i]);
        (void)cJSON_AddItemToArray(array, item);
    }
    object_print(object, out);
}

static void add_principal(cJSON *object, const struct part_principal *principal)
{
    (void)cJSON_AddStringToObject(object, "name", principal->name);
    (void)cJSON_AddStringToObject(object, "role", role_name(principal->role));
    (void)cJSON_AddBoolToObject(object, "connected", principal->is_connected);
    add_number(object, "keys", principal->secrets);
    add_time(object, "created_at", principal->created_ms);
    add_time(object, "rotated_at", principal->rotated_ms);
    add_time(object, "seen_at", principal->seen_ms);
}

void output_keys_json(const struct part_principal *items, uint32_t count, struct buf *out)
{
    cJSON *object = object_new(), *array = cJSON_AddArrayToObject(object, "principals");

    for (uint32_t i = 0; i < count; i++) {
        cJSON *item = cJSON_CreateObject();

        add_principal(item, &items[i]);
        (void)cJSON_AddItemToArray(array, item);
    }
    object_print(object, out);
}

void output_key_removed_json(const struct part_principal *gone, struct buf *out)
{
    cJSON *object = object_new();

    add_principal(cJSON_AddObjectToObject(object, "removed"), gone);
    object_print(object, out);
}

void output_key_json(const char *name, const struct msg_principal_key *key, struct buf *out)
{
    cJSON *object = object_new(), *item = cJSON_AddObjectToObject(object, "key");

    (void)cJSON_AddStringToObject(item, "name", name);
    (void)cJSON_AddStringToObject(item, "role", role_name(key->role));
    (void)cJSON_AddStringToObject(item, "url", key->url);
    add_time(item, "old_until", key->old_until_ms);
    object_print(object, out);
}

void output_login_json(const char *server, const char *name, struct buf *out)
{
    cJSON *object = object_new(), *item;

    if (server != NULL) {
        item = cJSON_AddObjectToObject(object, "login");
        (void)cJSON_AddStringToObject(item, "server", server);
        (void)cJSON_AddStringToObject(item, "name", name);
    } else {
        (void)cJSON_AddNullToObject(object, "login");
    }
    object_print(object, out);
}

void output_event_line_json(const struct part_event *event, struct buf *out)
{
    cJSON *object = object_new();

    (void)cJSON_AddStringToObject(object, "type", "event");
    add_event(object, event);
    object_print(object, out);
}

/* As --warn takes it, and exactly: "60s:10", "1500001us:10". */
static void add_warn(cJSON *object, uint64_t warn_us, uint32_t signal)
{
    const bool is_whole = warn_us % 1000000u == 0;
    char text[48];

    (void)snprintf(text, sizeof text, "%llu%s:%u",
                   (unsigned long long)(is_whole ? warn_us / 1000000u : warn_us),
                   is_whole ? "s" : "us", signal);
    (void)cJSON_AddStringToObject(object, "warn", text);
}

static void add_submit(cJSON *object, const struct msg_submit *submit)
{
    cJSON *env, *launch;

    (void)cJSON_AddStringToObject(object, "name", submit->name);
    add_number(object, "nodes", submit->nodes);
    add_number(object, "nproc_per_node", submit->nproc_per_node);
    add_number(object, "max_restarts", submit->max_restarts);
    add_number(object, "grace", (double)submit->grace_us / 1e6);
    add_number(object, "time", (double)submit->time_limit_us / 1e6);
    add_number(object, "priority", submit->priority);
    (void)cJSON_AddBoolToObject(object, "wait_for_nodes", submit->wait_for_nodes);
    add_number(object, "nodes_min", submit->nodes_min > 0 ? submit->nodes_min : submit->nodes);
    add_number(object, "spares", submit->spares);
    (void)cJSON_AddBoolToObject(object, "replace_stragglers", submit->replace_stragglers);
    (void)cJSON_AddBoolToObject(object, "requeue_at_limit", submit->requeue_at_limit);
    if (submit->hang_timeout_us == TIME_US_MAX)
        (void)cJSON_AddStringToObject(object, "hang_timeout", "off");
    else if (submit->hang_timeout_us > 0)
        add_number(object, "hang_timeout", (double)submit->hang_timeout_us / 1e6);
    if (submit->warn_us > 0)
        add_warn(object, submit->warn_us, submit->warn_signal);
    if (submit->after[0] != '\0')
        (void)cJSON_AddStringToObject(object, "after", submit->after);
    if (submit->array[0] != '\0')
        (void)cJSON_AddStringToObject(object, "array", submit->array);
    (void)cJSON_AddStringToObject(object, "cwd", submit->cwd);
    add_texts(object, "argv", &submit->argv);
    env = cJSON_AddObjectToObject(object, "env");
    for (uint32_t i = 0; i < submit->env.count; i++)
        (void)cJSON_AddStringToObject(env, submit->env.items[i].name, submit->env.items[i].value);
    launch = cJSON_AddObjectToObject(object, "launch");
    for (uint32_t i = 0; i < submit->launch.count; i++)
        (void)cJSON_AddStringToObject(launch, submit->launch.items[i].name,
                                      submit->launch.items[i].value);
}

void output_submit_json(const struct msg_submit *submit, struct buf *out)
{
    cJSON *object = object_new();

    add_submit(object, submit);
    object_print(object, out);
}

void output_submitted_json(const struct msg_submit *submit, uint64_t job_id, bool is_new,
                           struct buf *out)
{
    cJSON *object = object_new(), *job = cJSON_AddObjectToObject(object, "job");

    add_number(job, "id", (double)job_id);
    (void)cJSON_AddStringToObject(job, "name", submit->name);
    (void)cJSON_AddStringToObject(job, "state", job_state_name(JOB_QUEUED));
    add_number(job, "nodes", submit->nodes);
    add_number(job, "nproc_per_node", submit->nproc_per_node);
    add_number(job, "max_restarts", submit->max_restarts);
    (void)cJSON_AddBoolToObject(object, "is_new", is_new);
    object_print(object, out);
}

void output_add_valid(cJSON *object, const char *name, const char *text, size_t byte_count)
{
    struct buf valid = {0};

    assert(byte_count == 0 || text != NULL);
    for (size_t at = 0; at < byte_count;) {
        size_t length = text[at] == '\0' ? 0 : utf8_next(text + at, byte_count - at);

        if (length > 0)
            buf_add(&valid, text + at, length);
        else
            buf_add_text(&valid, "\xef\xbf\xbd");
        at += length > 0 ? length : 1;
    }
    buf_add(&valid, "", 1);
    (void)cJSON_AddStringToObject(object, name, valid.failed ? "" : valid.bytes);
    buf_free(&valid);
}

void output_log_json(const struct output_log *log, struct buf *out)
{
    cJSON *object = object_new();

    (void)cJSON_AddStringToObject(object, "type", "log");
    add_number(object, "job_id", (double)log->job_id);
    add_number(object, "generation", log->generation);
    add_number(object, "rank", log->rank);
    add_text(object, "node", log->node);
    (void)cJSON_AddStringToObject(object, "stream", log->is_error ? "stderr" : "stdout");
    add_time(object, "time", log->at_ms);
    if (log->continues)
        (void)cJSON_AddBoolToObject(object, "continues", true);
    output_add_valid(object, "text", log->text, log->byte_count);
    object_print(object, out);
}

void output_turn_json(const struct output_turn *turn, struct buf *out)
{
    cJSON *object = object_new();

    (void)cJSON_AddStringToObject(object, "type", "generation");
    add_number(object, "job_id", (double)turn->job_id);
    add_number(object, "generation", turn->generation);
    add_number(object, "world_size", turn->world);
    add_text(object, "reason", turn->cause);
    add_known(object, "checkpoint_step", (double)turn->checkpoint_step, turn->checkpoint_step > 0);
    object_print(object, out);
}

void output_exit_json(const struct msg_job_info *info, int code, bool is_ours, struct buf *out)
{
    cJSON *object = object_new(), *exit;

    (void)cJSON_AddStringToObject(object, "type", "end");
    if (info)
        add_job_info(object, info);
    exit = cJSON_AddObjectToObject(object, "exit");
    add_number(exit, "code", code);
    (void)cJSON_AddStringToObject(exit, "source", is_ours ? "ddpctl" : "job");
    object_print(object, out);
}

void output_error_json(const char *code, const char *message, const char *hint, struct buf *out)
{
    cJSON *object = cJSON_CreateObject(), *error = cJSON_AddObjectToObject(object, "error");

    (void)cJSON_AddStringToObject(error, "code", code);
    output_add_valid(error, "message", message, strlen(message));
    output_add_valid(error, "hint", hint, strlen(hint));
    object_print(object, out);
}
