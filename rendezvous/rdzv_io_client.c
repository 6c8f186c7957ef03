/* What clients ask: the core answers for jobs that are active, the store for those that ended. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "rendezvous/rdzv_io_internal.h"

static bool state_is_end(enum job_state state)
{
    return state == JOB_SUCCEEDED || state == JOB_FAILED || state == JOB_CANCELLED;
}

bool job_is_active(const struct rdzv_io *io, uint64_t job_id)
{
    const struct rdzv_record *record = rdzv_record(io->core, job_id);

    return record != NULL && !state_is_end(record->state);
}

/* 0 after an answer that says so. Jobs of other users are not found either. */
static uint64_t find_job(struct peer *peer, const char *text)
{
    uint64_t job_id = store_find_job(peer->io->store, text, peer_viewer(peer));

    if (job_id != 0)
        return job_id;
    if (strcmp(text, "@last") == 0)
        peer_error(peer, "not_found", "submit one: ddpctl submit -- CMD...", "there is no job yet");
    else
        peer_error(peer, "not_found", "list them: ddpctl ps -a", "there is no job %s", text);
    return 0;
}

static void on_submit(struct peer *peer, const struct msg *msg)
{
    struct rdzv_io *io = peer->io;
    struct msg answer = {.type = MSG_TYPE_SUBMITTED};
    struct rdzv_event event = {
        .type = RDZV_EVENT_SUBMIT, .client = peer->id, .msg = msg, .uid = peer->uid};

    event.user = peer_user(peer);
    if (store_find_request(io->store, msg->submit.request_id, peer->uid,
                           &answer.submitted.job_id)) {
        peer_send(peer, &answer);
        return;
    }
    io_step(io, &event);
}

static void fill_from_store(const struct store_job *job, struct part_job *out)
{
    rdzv_summary(&job->record, job->where, out);
    out->epoch = job->epoch;
    out->epochs = job->epochs;
    out->step = job->step;
    out->steps = job->steps;
    out->loss = job->loss;
    out->samples_per_s = job->samples_per_s;
}

/* The n-th slot, from 0, that is set in the mask. */
static uint32_t slot_at(uint64_t mask, uint32_t n)
{
    while (n-- > 0)
        mask &= mask - 1;
    return mask != 0 ? (uint32_t)__builtin_ctzll(mask) : 0;
}

static uint32_t fill_ranks(const struct rdzv_record *record, const struct rdzv_rank *ranks,
                           struct part_job_rank *out)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < record->part_count; i++) {
        const struct rdzv_part *part = &record->parts[i];

        for (uint32_t j = 0; j < part->local_count && count < RANKS_PER_JOB_MAX; j++) {
            const struct rdzv_rank *rank = &ranks[part->rank_base + j];

            out[count++] = (struct part_job_rank){
                .rank = part->rank_base + j,
                .local_rank = j,
                .node = part->node,
                .slot = slot_at(part->slot_mask, j),
                .pid = rank->pid,
                .state = (enum rank_state)rank->state,
                .exit_code = rank->exit_code,
                .signal = rank->signal,
            };
        }
    }
    return count;
}

void client_send_job(struct peer *peer, uint64_t job_id)
{
    struct rdzv_io *io = peer->io;
    bool is_active = job_is_active(io, job_id);
    const struct rdzv_record *record = rdzv_record(io->core, job_id);
    struct msg msg = {.type = MSG_TYPE_JOB_INFO};
    char where[REASON_BYTES_MAX];
    struct store_spec spec;
    struct store_job job;
    struct part_job part;
    struct part_job_rank *ranks;

    arena_reset(&io->arena);
    ranks = arena_alloc(&io->arena, sizeof *ranks * RANKS_PER_JOB_MAX);
    if (ranks == NULL || (!is_active && !store_get_job(io->store, job_id, &job)) ||
        store_spec(io->store, job_id, false, &io->arena, &spec) != STATUS_OK) {
        peer_error(peer, "internal", "", "job %llu cannot be read", (unsigned long long)job_id);
        return;
    }
    if (is_active) {
        rdzv_job_part(io->core, job_id, where, &part);
        msg.job_info.ranks.count = fill_ranks(record, rdzv_ranks(io->core, job_id), ranks);
        msg.job_info.version = io->version_base + rdzv_job_version(io->core, job_id);
    } else {
        record = &job.record;
        fill_from_store(&job, &part);
        msg.job_info.ranks.count = store_ranks(io->store, job_id, record->generation, &io->arena,
                                               ranks, RANKS_PER_JOB_MAX);
        msg.job_info.version = VERSION_ENDED;
    }
    msg.job_info.jobs.items = &part;
    msg.job_info.jobs.count = 1;
    msg.job_info.ranks.items = ranks;
    msg.job_info.failed_rank = record->failed_rank;
    msg.job_info.failed_node = record->failed_node;
    msg.job_info.tail = record->tail;
    msg.job_info.argv = spec.argv;
    msg.job_info.cwd = spec.cwd;
    peer_send(peer, &msg);
    arena_reset(&io->arena);
}

static void on_job_get(struct peer *peer, const struct msg_job_get *request)
{
    struct rdzv_io *io = peer->io;
    uint64_t job_id = find_job(peer, request->job);

    if (job_id == 0)
        return;
    if (request->after_version != 0 && request->wait_us != 0 && job_is_active(io, job_id) &&
        io->version_base + rdzv_job_version(io->core, job_id) <= request->after_version)
        (void)wait_add(peer, &(struct waiter){.kind = WAIT_JOB,
                                              .deadline_us = request->wait_us,
                                              .job_id = job_id,
                                              .after = request->after_version});
    else
        client_send_job(peer, job_id);
}

struct listing {
    struct rdzv_io *io;
    struct part_job *jobs;
    uint32_t count, limit;
    bool more, failed;
};

static const char *keep(struct listing *list, const char *text)
{
    char *copy = arena_text(&list->io->arena, text, strlen(text));

    list->failed = list->failed || copy == NULL;
    return copy;
}

static void list_active(struct listing *list, uint64_t job_id)
{
    char *where = arena_alloc(&list->io->arena, REASON_BYTES_MAX);

    if (where == NULL)
        list->failed = true;
    else
        rdzv_job_part(list->io->core, job_id, where, &list->jobs[list->count++]);
}

static void list_stored(const struct store_job *job, void *context)
{
    struct listing *list = context;
    struct part_job *out;

    if (list->count == list->limit) {
        list->more = true;
        return;
    }
    if (job_is_active(list->io, job->record.job_id)) {
        list_active(list, job->record.job_id);
        return;
    }
    out = &list->jobs[list->count++];
    fill_from_store(job, out);
    out->name = keep(list, out->name); /* `job` is gone after this call */
    out->user = keep(list, out->user);
    out->where = keep(list, out->where);
    out->reason = keep(list, out->reason);
}

static void list_core(struct listing *list, struct store_viewer viewer, uint64_t after_id)
{
    struct rdzv *core = list->io->core;

    for (uint32_t i = 0; i < rdzv_job_count(core); i++) {
        uint64_t job_id = rdzv_job_at(core, i);

        if (job_id <= after_id || !job_is_active(list->io, job_id) ||
            (!viewer.sees_all && rdzv_record(core, job_id)->uid != viewer.uid))
            continue;
        if (list->count == list->limit)
            list->more = true;
        else
            list_active(list, job_id);
    }
}

static void on_job_list(struct peer *peer, const struct msg_job_list *request)
{
    struct rdzv_io *io = peer->io;
    struct listing list = {.io = io, .limit = request->limit};
    struct msg msg = {.type = MSG_TYPE_JOBS};

    arena_reset(&io->arena);
    list.jobs = arena_alloc(&io->arena, sizeof *list.jobs * request->limit);
    list.failed = list.jobs == NULL;
    if (!list.failed && request->all)
        store_list(io->store, peer_viewer(peer), request->after_id, request->limit + 1, list_stored,
                   &list);
    else if (!list.failed)
        list_core(&list, peer_viewer(peer), request->after_id);
    msg.jobs.jobs.items = list.jobs;
    msg.jobs.jobs.count = list.count;
    msg.jobs.more = list.more;
    if (list.failed)
        peer_error(peer, "internal", "", "no memory for a list of jobs");
    else
        peer_send(peer, &msg);
    arena_reset(&io->arena);
}

static void on_cancel(struct peer *peer, const struct msg *msg)
{
    struct rdzv_event event = {
        .type = RDZV_EVENT_CANCEL, .client = peer->id, .msg = msg, .uid = peer->uid};

    event.job_id = find_job(peer, msg->cancel.job);
    if (event.job_id == 0)
        return;
    if (job_is_active(peer->io, event.job_id))
        io_step(peer->io, &event);
    else
        client_send_job(peer, event.job_id); /* it has ended: as it is */
}

void client_send_nodes(struct peer *peer, bool with_lost, const char *name)
{
    struct rdzv_io *io = peer->io;
    struct msg msg = {.type = MSG_TYPE_NODES};
    uint32_t count = rdzv_node_count(io->core);
    uint64_t now_us = clock_boot_us();
    bool is_one = name[0] != '\0';
    struct part_node *nodes;
    struct part_slot *slots;

    arena_reset(&io->arena);
    nodes = arena_alloc(&io->arena, sizeof *nodes * (count + 1));
    slots = arena_alloc(&io->arena, sizeof *slots * SLOTS_LISTED_MAX);
    if (nodes == NULL || slots == NULL) {
        peer_error(peer, "internal", "", "no memory for a list of nodes");
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct part_node *node = &nodes[msg.nodes.nodes.count];

        rdzv_node_at(io->core, i, now_us, node);
        msg.nodes.nodes.count +=
            is_one ? strcmp(node->name, name) == 0 : with_lost || node->state != NODE_LOST;
    }
    msg.nodes.nodes.items = nodes;
    msg.nodes.slots.items = slots;
    msg.nodes.slots.count = rdzv_slots(io->core, is_one ? name : NULL, slots, SLOTS_LISTED_MAX);
    peer_send(peer, &msg);
    arena_reset(&io->arena);
}

static void on_node_list(struct peer *peer, const struct msg_node_list *request)
{
    if (request->node[0] != '\0' && !rdzv_has_node(peer->io->core, request->node))
        peer_error(peer, "not_found", "list them: ddpctl nodes -a", "there is no node %s",
                   request->node);
    else
        client_send_nodes(peer, request->all, request->node);
}

static void on_node_change(struct peer *peer, const struct msg *msg, enum rdzv_event_type type)
{
    struct rdzv_event event = {.type = type, .client = peer->id, .msg = msg, .uid = peer->uid};

    event.user = peer_user(peer);
    if (peer_viewer(peer).sees_all)
        io_step(peer->io, &event);
    else
        peer_error(peer, "refused", "ask root, or the user that the server runs as",
                   "user %s may not drain or resume nodes", event.user);
}

bool events_answer(struct peer *peer, uint64_t job_id, uint64_t after_id, uint32_t limit, bool now)
{
    struct rdzv_io *io = peer->io;
    struct msg msg = {.type = MSG_TYPE_EVENTS};
    struct part_event *events;
    bool is_answer;

    arena_reset(&io->arena);
    events = arena_alloc(&io->arena, sizeof *events * limit);
    if (events != NULL)
        msg.events.events.count =
            store_events(io->store, peer_viewer(peer), job_id, after_id, limit, &io->arena, events);
    msg.events.events.items = events;
    is_answer = now || msg.events.events.count > 0;
    if (is_answer)
        peer_send(peer, &msg);
    arena_reset(&io->arena);
    return is_answer;
}

static void on_event_list(struct peer *peer, const struct msg_event_list *request)
{
    char number[24];

    io_flush(peer->io); /* what is told must last */
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)request->job_id);
    if (request->job_id != 0 && find_job(peer, number) == 0)
        return;
    if (!events_answer(peer, request->job_id, request->after_id, request->limit,
                       request->wait_us == 0))
        (void)wait_add(peer, &(struct waiter){.kind = WAIT_EVENTS,
                                              .deadline_us = request->wait_us,
                                              .job_id = request->job_id,
                                              .after = request->after_id,
                                              .limit = request->limit});
}

void client_request(struct peer *peer, const struct msg *msg)
{
    if (msg->type == MSG_TYPE_SUBMIT)
        on_submit(peer, msg);
    else if (msg->type == MSG_TYPE_JOB_GET)
        on_job_get(peer, &msg->job_get);
    else if (msg->type == MSG_TYPE_JOB_LIST)
        on_job_list(peer, &msg->job_list);
    else if (msg->type == MSG_TYPE_CANCEL)
        on_cancel(peer, msg);
    else if (msg->type == MSG_TYPE_NODE_LIST)
        on_node_list(peer, &msg->node_list);
    else if (msg->type == MSG_TYPE_NODE_DRAIN)
        on_node_change(peer, msg, RDZV_EVENT_NODE_DRAIN);
    else if (msg->type == MSG_TYPE_NODE_RESUME)
        on_node_change(peer, msg, RDZV_EVENT_NODE_RESUME);
    else if (msg->type == MSG_TYPE_EVENT_LIST)
        on_event_list(peer, &msg->event_list);
    else if (msg->type == MSG_TYPE_LOG_READ)
        log_request(peer, &msg->log_read);
    else
        peer_error(peer, "bad_request", "", "a client may not send %s", msg_type_word(msg->type));
}
