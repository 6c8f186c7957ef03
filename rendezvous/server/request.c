/* The requests of clients. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/after_spec.h"
#include "common/array_spec.h"
#include "common/log.h"
#include "rendezvous/server/internal.h"

/* 0: not found, which was answered. Jobs of other users count as not found. */
static uint64_t find_job(struct peer *peer, const char *text)
{
    uint64_t job_id = store_find_job(peer->server->store, text, peer_viewer(peer));

    if (job_id != 0)
        return job_id;
    if (strcmp(text, "@last") == 0)
        peer_error(peer, "not_found", "submit one: ddpctl submit -- CMD...", "there is no job yet");
    else
        peer_error(peer, "not_found", "list them: ddpctl ps -a", "there is no job %s", text);
    return 0;
}

/* Finds what one item of --after names: a job, or all jobs of an array. False: not found, which was
 * answered. */
static bool find_after(struct peer *peer, const struct after_spec_item *wanted,
                       struct rdzv_after_item *item)
{
    struct rdzv_record record;
    uint64_t job_id = find_job(peer, wanted->job);

    if (job_id == 0)
        return false;
    arena_reset(&peer->server->arena);
    if (!store_get_job(peer->server->store, job_id, &peer->server->arena, &record))
        return false;
    *item = (struct rdzv_after_item){.first = job_id, .last = job_id, .any = wanted->any};
    if (array_spec_is_whole(wanted->job, record.array_job)) {
        item->first = record.array_job;
        item->last = record.array_job + record.array_count - 1;
    }
    return true;
}

/* Adds an item. If a job is named twice, both conditions must hold: its success is required, unless
 * both items accept any end. */
static void add_after(struct rdzv_after *after, const struct rdzv_after_item *item)
{
    for (uint32_t i = 0; i < after->count; i++)
        if (after->items[i].first == item->first && after->items[i].last == item->last) {
            after->items[i].any = after->items[i].any && item->any;
            return;
        }
    after->items[after->count++] = *item;
}

/* False: an error was answered. */
static bool find_all_after(struct peer *peer, const struct msg_submit *submit,
                           struct rdzv_after *after)
{
    struct after_spec spec;
    struct err err;

    if (submit->after[0] == '\0')
        return true;
    if (after_spec_parse(submit->after, &spec, &err) != STATUS_OK) {
        peer_error(peer, "bad_request", "see ddpctl submit --help", "%s", err.text);
        return false;
    }
    for (uint32_t i = 0; i < spec.count; i++) {
        struct rdzv_after_item item = {0};

        if (!find_after(peer, &spec.items[i], &item))
            return false;
        add_after(after, &item);
    }
    store_find_failed(peer->server->store, after);
    return true;
}

static bool was_refused(const struct server *server)
{
    for (uint32_t i = 0; i < server->actions->count; i++)
        if (server->actions->items[i].type == RDZV_REPLY_ERROR)
            return true;
    return false;
}

/* Steps the core once for each job of an array, in one transaction. The core does nothing else
 * before the last job. */
static void submit_all(struct peer *peer, struct rdzv_event *event)
{
    static struct array_spec array;
    struct err err;
    enum status status;

    if (event->msg->submit.array[0] == '\0') {
        server_step(peer->server, event);
        return;
    }
    status = array_spec_parse(event->msg->submit.array, &array, &err);
    if (status != STATUS_OK) {
        peer_error(peer, "bad_request", "see ddpctl submit --help", "%s", err.text);
        return;
    }
    event->array = &array;
    do {
        server_step(peer->server, event);
    } while (!was_refused(peer->server) && ++event->array_place < array.count);
}

/* What the jobs of a submit would add to what the user has in the store. An array shares one spec. */
static struct rdzv_stored stored_by(struct server *server, const char *user,
                                    const struct msg_submit *submit)
{
    static struct array_spec array;
    const uint64_t free_bytes = store_free_bytes(server->store);
    struct err err;

    if (server->core_options.max_stored_per_user == 0 && free_bytes == UINT64_MAX)
        return (struct rdzv_stored){0}; /* nothing is limited */
    array.count = 1;
    if (submit->array[0] != '\0' && array_spec_parse(submit->array, &array, &err) != STATUS_OK)
        array.count = 1; /* it is refused */
    return (struct rdzv_stored){.has_bytes = store_user_bytes(server->store, user),
                                .adds_bytes = store_spec_bytes(submit) +
                                              (uint64_t)array.count * STORE_JOB_BYTES,
                                .free_bytes = free_bytes};
}

/* False: an error was answered. */
static bool fits_store(struct peer *peer, const struct msg *msg)
{
    const size_t most = store_spec_bytes_max(peer->server->store);
    struct buf json = {0};
    bool fits = true;
    struct err err;

    if (most == SIZE_MAX)
        return true;
    fits = msg_encode(msg, &json, &err) == STATUS_OK && json.byte_count <= most;
    if (!fits)
        peer_error(
            peer, "bad_request",
            "leave variables out (env -u NAME), or send only those of --env: --env-clear",
            "the command and environment of the job have %zu bytes, and a server whose state "
            "is in etcd takes %zu",
            json.byte_count, most);
    buf_free(&json);
    return fits;
}

void client_submit(struct peer *peer, const struct msg *msg)
{
    struct server *server = peer->server;
    struct msg answer = {.type = MSG_TYPE_SUBMITTED};
    struct rdzv_event event = {
        .type = RDZV_EVENT_SUBMIT, .client = peer->id, .msg = msg, .uid = peer_uid(peer)};

    event.user = peer_user(peer);
    event.is_admin = peer_is_admin(peer);
    if (store_find_request(server->store, msg->submit.request_id, event.user,
                           &answer.submitted.job_id)) {
        server_flush(server); /* the first request may have come in this turn */
        peer_send(peer, &answer);
        return;
    }
    event.stored = stored_by(server, event.user, &msg->submit);
    if (fits_store(peer, msg) && find_all_after(peer, &msg->submit, &event.after))
        submit_all(peer, &event);
}

static void on_submit(struct peer *peer, const struct msg *msg)
{
    if (!stage_takes_submit(peer, msg))
        client_submit(peer, msg);
}

static void on_job_get(struct peer *peer, const struct msg_job_get *request)
{
    struct server *server = peer->server;
    uint64_t job_id = find_job(peer, request->job);

    if (job_id == 0)
        return;
    if (request->after_version != 0 && request->wait_us != 0 && job_is_active(server, job_id) &&
        server->version_base + rdzv_job_version(server->core, job_id) <= request->after_version)
        (void)wait_add(peer,
                       &(struct waiter){.kind = WAIT_JOB,

                                        .job_id = job_id,
                                        .after = request->after_version,
                                        .first_rank = request->first_rank},
                       request->wait_us);
    else
        answer_job(peer, job_id, request->first_rank);
}

static void on_why_get(struct peer *peer, const struct msg_why_get *request)
{
    uint64_t job_id = find_job(peer, request->job);

    if (job_id != 0)
        answer_why(peer, job_id, request->ranks_of);
}

struct listing {
    struct server *server;
    struct part_job *jobs;
    uint32_t count, limit;
    bool more, failed;
};

static const char *keep(struct listing *list, const char *text)
{
    char *copy = arena_text(&list->server->arena, text, strlen(text));

    list->failed = list->failed || copy == NULL;
    return copy;
}

static void list_stored(const struct rdzv_record *record, void *context)
{
    struct listing *list = context;
    struct part_job *out;

    if (list->count == list->limit) {
        list->more = true;
        return;
    }
    out = &list->jobs[list->count++];
    if (job_is_active(list->server, record->job_id)) {
        rdzv_job_part(list->server->core, record->job_id, out);
        return;
    }
    rdzv_summary(record, out);
    out->name = keep(list, out->name); /* `record` is gone after this call */
    out->user = keep(list, out->user);
    out->where = keep(list, out->where);
    out->reason = keep(list, out->reason);
}

static void list_core(struct listing *list, struct store_viewer viewer, uint64_t after_id)
{
    struct rdzv *core = list->server->core;

    for (uint32_t i = 0; i < rdzv_job_count(core); i++) {
        uint64_t job_id = rdzv_job_at(core, i);

        if (job_id <= after_id || !job_is_active(list->server, job_id) ||
            (!viewer.sees_all && strcmp(rdzv_job_record(core, job_id)->user, viewer.user) != 0))
            continue;
        if (list->count == list->limit)
            list->more = true;
        else
            rdzv_job_part(core, job_id, &list->jobs[list->count++]);
    }
}

static void on_job_list(struct peer *peer, const struct msg_job_list *request)
{
    struct server *server = peer->server;
    struct listing list = {.server = server, .limit = request->limit};
    struct msg msg = {.type = MSG_TYPE_JOBS};

    arena_reset(&server->arena);
    list.jobs = arena_alloc(&server->arena, sizeof *list.jobs * request->limit);
    list.failed = list.jobs == NULL;
    if (!list.failed && request->all)
        store_list(server->store, peer_viewer(peer), request->after_id, request->limit + 1,
                   list_stored, &list);
    else if (!list.failed)
        list_core(&list, peer_viewer(peer), request->after_id);
    msg.jobs.jobs.items = list.jobs;
    msg.jobs.jobs.count = list.count;
    msg.jobs.more = list.more;
    if (list.failed)
        peer_error(peer, "later", "", "the server has no memory for a list of jobs");
    else
        peer_send(peer, &msg);
    arena_reset(&server->arena);
}

static void on_cancel(struct peer *peer, const struct msg *msg)
{
    struct rdzv_event event = {.type = RDZV_EVENT_CANCEL, .client = peer->id, .msg = msg};

    event.job_id = find_job(peer, msg->cancel.job);
    if (event.job_id == 0)
        return;
    event.user = peer_user(peer);
    if (job_is_active(peer->server, event.job_id))
        server_step(peer->server, &event);
    else
        answer_job(peer, event.job_id, 0); /* it has ended: answers its final state */
}

static void on_node_list(struct peer *peer, const struct msg_node_list *request)
{
    if (request->node[0] != '\0' && !answer_has_node(peer->server, request->node))
        peer_error(peer, "not_found", "list them: ddpctl nodes -a", "there is no node %s",
                   request->node);
    else if (request->node[0] != '\0')
        answer_node(peer, request->node);
    else
        answer_nodes(peer, request->all, request->after, request->limit);
}

static void on_node_change(struct peer *peer, const struct msg *msg, enum rdzv_event_type type)
{
    struct rdzv_event event = {.type = type, .client = peer->id, .msg = msg};

    event.user = peer_user(peer);
    server_step(peer->server, &event);
}

static void on_event_list(struct peer *peer, const struct msg_event_list *request)
{
    char number[24];

    server_flush(peer->server); /* an event must be durable before it is shown */
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)request->job_id);
    if (request->job_id != 0 && find_job(peer, number) == 0)
        return;
    if (!answer_events(peer, request->job_id, request->after_id, request->limit,
                       request->wait_us == 0))
        (void)wait_add(peer,
                       &(struct waiter){.kind = WAIT_EVENTS,

                                        .job_id = request->job_id,
                                        .after = request->after_id,
                                        .limit = request->limit},
                       request->wait_us);
}

/* Requests that add to the state are refused while the disk is nearly full; those that end or show
 * jobs are not. */
static bool needs_room(enum msg_type type)
{
    return type == MSG_TYPE_SUBMIT || type == MSG_TYPE_STAGE_PUT ||
           type == MSG_TYPE_PRINCIPAL_ADD || type == MSG_TYPE_PRINCIPAL_ROTATE;
}

static void on_keys_checked(struct peer *peer, const struct msg_keys_checked *request)
{
    keys_checked(peer->server, peer_user(peer));
    answer_server(peer, request->request_id);
}

/* Submits are made durable before jobs are shown, and answers leave in the order of requests. Only
 * submits of different clients share a transaction. */
void client_request(struct peer *peer, const struct msg *msg)
{
    if (peer->server->submitted_count > 0 && (msg->type != MSG_TYPE_SUBMIT || peer->is_submitting))
        server_flush(peer->server);
    if (!backlog_admits(peer))
        return;
    if (needs_room(msg->type) && store_is_low(peer->server->store))
        peer_error(peer, "full",
                   "free the disk of the server's state directory; running jobs go on",
                   "the server's disk is nearly full, so it takes no new jobs and makes no keys");
    else if (msg->type == MSG_TYPE_SUBMIT)
        on_submit(peer, msg);
    else if (msg->type == MSG_TYPE_JOB_GET)
        on_job_get(peer, &msg->job_get);
    else if (msg->type == MSG_TYPE_WHY_GET)
        on_why_get(peer, &msg->why_get);
    else if (msg->type == MSG_TYPE_JOB_LIST)
        on_job_list(peer, &msg->job_list);
    else if (msg->type == MSG_TYPE_CANCEL)
        on_cancel(peer, msg);
    else if (msg->type == MSG_TYPE_NODE_LIST)
        on_node_list(peer, &msg->node_list);
    else if (msg->type == MSG_TYPE_SERVER_GET)
        answer_server(peer, msg->server_get.request_id);
    else if (msg->type == MSG_TYPE_KEYS_CHECKED)
        on_keys_checked(peer, &msg->keys_checked);
    else if (msg->type == MSG_TYPE_NODE_DRAIN)
        on_node_change(peer, msg, RDZV_EVENT_NODE_DRAIN);
    else if (msg->type == MSG_TYPE_NODE_RESUME)
        on_node_change(peer, msg, RDZV_EVENT_NODE_RESUME);
    else if (msg->type == MSG_TYPE_EVENT_LIST)
        on_event_list(peer, &msg->event_list);
    else if (msg->type == MSG_TYPE_LOG_READ)
        log_request(peer, &msg->log_read);
    else if (msg->type == MSG_TYPE_INPUT)
        input_request(peer, &msg->input);
    else if (msg->type == MSG_TYPE_NODE_READ)
        relay_request(peer, &msg->node_read);
    else if (msg->type == MSG_TYPE_PRINCIPAL_ADD || msg->type == MSG_TYPE_PRINCIPAL_ROTATE ||
             msg->type == MSG_TYPE_PRINCIPAL_REMOVE || msg->type == MSG_TYPE_PRINCIPAL_LIST)
        keys_request(peer, msg);
    else if (msg->type == MSG_TYPE_STAGE_PUT)
        stage_put(peer, &msg->stage_put);
    else
        peer_error(peer, "bad_request", "", "a client may not send %s", msg_type_name(msg->type));
}
