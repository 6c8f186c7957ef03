/* Requests that wait: for a job's next version, for events, for a log on some node, or for a node's answer to a
 * question (relay.c).
 *
 * Logs: the bytes are on the node that ran the rank. A log_read is forwarded to that node under an id of ours,
 * and its log_data goes back to the client under the client's id. If the rank has not run on any node yet
 * (queued, or a later generation), the request waits here. When its time is over, it is answered without bytes,
 * and the client asks again. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/fnv.h"
#include "common/log.h"
#include "rendezvous/server/internal.h"

#define PUT_OFF_US 50000u

static void on_timer(uv_timer_t *timer);

static void arm(struct server *server)
{
    uint64_t next_us = UINT64_MAX, now_us = clock_boot_us();

    for (uint32_t i = 0; i < server->waiter_count; i++)
        if (server->waiters[i].deadline_us < next_us)
            next_us = server->waiters[i].deadline_us;
    if (next_us == UINT64_MAX || server->is_stopping) {
        (void)uv_timer_stop(&server->wait_timer);
        return;
    }
    uv_update_time(server->loop);
    (void)uv_timer_start(&server->wait_timer, on_timer,
                         next_us > now_us ? (next_us - now_us + 999) / 1000 : 0, 0);
}

/* How many requests of its user wait. */
static uint32_t count_of_user(const struct peer *peer)
{
    const struct server *server = peer->server;
    const uint64_t user = peer_user_key(peer);
    uint32_t count = 0;

    for (uint32_t i = 0; i < server->waiter_count; i++) {
        const struct peer *other = peer_find(server, server->waiters[i].peer_id);

        count += other != NULL && peer_user_key(other) == user;
    }
    return count;
}

/* No user may have more places than are free, so that the others always find some. False: it was told so. */
static bool user_may_wait(struct peer *peer)
{
    const uint32_t count = count_of_user(peer);
    const uint32_t free_count = WAITERS_MAX - peer->server->waiter_count;

    if (count < free_count)
        return true;
    peer_error(peer, "full", "wait for answers before the next request, or end some clients",
               "%u requests of %s wait already; one more is possible while at least as many places "
               "are free (%u are)",
               count, peer_user(peer), free_count);
    return false;
}

bool wait_add(struct peer *peer, const struct waiter *waiter, uint64_t timeout_us)
{
    struct server *server = peer->server;
    struct waiter *place;

    if (server->waiter_count == WAITERS_MAX || peer->waiter_count >= WAITERS_PER_PEER_MAX) {
        peer_error(peer, "full", "wait for an answer before the next request",
                   "%u requests of this connection wait already, %u of all", peer->waiter_count,
                   server->waiter_count);
        return false;
    }
    if (!user_may_wait(peer))
        return false;
    place = &server->waiters[server->waiter_count++];
    *place = *waiter;
    place->peer_id = peer->id;
    place->deadline_us = clock_boot_us() + timeout_us;
    peer->waiter_count++;
    arm(server);
    return true;
}

/* Removes the i-th waiter; another one takes its place in the table. */
static struct waiter take(struct server *server, uint32_t i)
{
    struct waiter waiter = server->waiters[i];
    struct peer *peer = peer_find(server, waiter.peer_id);

    server->waiters[i] = server->waiters[--server->waiter_count];
    if (peer != NULL)
        peer->waiter_count--;
    return waiter;
}

static void send_log(struct peer *peer, const struct msg_log_read *request, bool is_final,
                     const char *problem)
{
    struct msg msg = {.type = MSG_TYPE_LOG_DATA};

    msg.log_data.request_id = request->request_id;
    msg.log_data.offset = request->offset;
    msg.log_data.is_final = is_final;
    msg.log_data.problem = problem;
    peer_send(peer, &msg);
}

/* The time is over, and what the request waited for did not happen. */
static void answer_late(struct server *server, const struct waiter *waiter)
{
    struct peer *peer = peer_find(server, waiter->peer_id);

    if (peer == NULL)
        return;
    switch (waiter->kind) {
    case WAIT_JOB:
        answer_job(peer, waiter->job_id, waiter->first_rank);
        break;
    case WAIT_EVENTS:
        (void)answer_events(peer, waiter->job_id, waiter->after, waiter->limit, true);
        break;
    case WAIT_LOG_RANK:
        send_log(peer, &waiter->log, false, "");
        break;
    case WAIT_LOG_NODE:
        send_log(peer, &waiter->log, false, "its node does not answer; ask again");
        break;
    case WAIT_INPUT:
        answer_input_problem(peer, waiter->after, "its node does not answer");
        break;
    case WAIT_NODE_DATA:
        answer_question_problem(peer, waiter->after, NODE_IS_SILENT);
        break;
    }
}

/* Puts off an answer that may be large, to a client that has not read the ones before: answer_late gives it
 * later, with what is new by then. False: the client takes it now. */
static bool put_off(struct server *server, struct waiter *waiter)
{
    struct peer *peer = peer_find(server, waiter->peer_id);

    if (waiter->kind != WAIT_JOB && waiter->kind != WAIT_EVENTS)
        return false;
    if (peer == NULL || backlog_takes(peer))
        return false;
    waiter->deadline_us = clock_boot_us() + PUT_OFF_US;
    return true;
}

static void on_timer(uv_timer_t *timer)
{
    struct server *server = timer->data;
    uint64_t now_us = clock_boot_us();

    for (uint32_t i = server->waiter_count; i-- > 0;) {
        if (i < server->waiter_count && server->waiters[i].deadline_us <= now_us &&
            !put_off(server, &server->waiters[i])) {
            struct waiter waiter = take(server, i);

            answer_late(server, &waiter);
        }
    }
    arm(server);
}

bool wait_rank_node(const struct server *server, uint64_t job_id, uint32_t generation,
                    uint32_t rank, char node[NODE_NAME_BYTES_MAX])
{
    const struct rdzv_record *record = rdzv_job_record(server->core, job_id);

    for (uint32_t i = 0;
         record != NULL && record->generation == generation && i < record->part_count; i++) {
        const struct rdzv_part *part = &record->parts[i];

        if (rank < part->rank_base || rank - part->rank_base >= part->local_count)
            continue;
        (void)snprintf(node, NODE_NAME_BYTES_MAX, "%s", part->node);
        return true;
    }
    return false;
}

/* The node on which that rank ran in that generation. */
static bool find_node(struct server *server, const struct msg_log_read *request,
                      char node[NODE_NAME_BYTES_MAX])
{
    return wait_rank_node(server, request->job_id, request->generation, request->rank, node) ||
           store_rank_node(server->store, request->job_id, request->generation, request->rank,
                           node);
}

/* The rank has run on no node yet. While the job is active it may still be placed, so the request
 * waits; otherwise it never ran, and the answer says so. */
static void log_nowhere(struct peer *peer, const struct msg_log_read *request)
{
    struct server *server = peer->server;
    const struct rdzv_record *record = rdzv_job_record(server->core, request->job_id);
    char problem[REASON_BYTES_MAX];

    if (job_is_active(server, request->job_id) &&
        request->rank < record->nodes * record->nproc_per_node &&
        request->generation >= record->generation) {
        (void)wait_add(peer,
                       &(struct waiter){.kind = WAIT_LOG_RANK,

                                        .job_id = request->job_id,
                                        .log = *request},
                       request->wait_us);
        return;
    }
    (void)snprintf(problem, sizeof problem, "job %llu never had a rank %u in generation %u",
                   (unsigned long long)request->job_id, request->rank, request->generation);
    send_log(peer, request, true, problem);
}

/* A new id. Its last byte tells users apart, so that the node can take turns between them. */
static uint64_t log_id(struct peer *peer)
{
    const uint64_t user = peer_user_key(peer);

    return ++peer->server->forward_serial << 8 | (fnv_add(FNV_START, &user, sizeof user) & 0xff);
}

static void log_forward(struct peer *peer, const struct msg_log_read *request, const char *name)
{
    struct server *server = peer->server;
    struct peer *node = peer_find(server, rdzv_node_conn(server->core, name));
    struct msg msg = {.type = MSG_TYPE_LOG_READ, .log_read = *request};
    char problem[REASON_BYTES_MAX];

    if (node == NULL) {
        (void)snprintf(problem, REASON_BYTES_MAX,
                       "%s is not connected; its logs are on that machine, in the state directory "
                       "of its launcherd",
                       name);
        send_log(peer, request, false, problem);
        return;
    }
    msg.log_read.request_id = log_id(peer);
    msg.log_read.submitted_ms = store_submitted_ms(server->store, request->job_id);
    if (wait_add(peer,
                 &(struct waiter){.kind = WAIT_LOG_NODE,

                                  .job_id = request->job_id,
                                  .log = *request,
                                  .node_peer_id = node->id,
                                  .forward_id = msg.log_read.request_id},
                 request->wait_us + LOG_ANSWER_US))
        peer_send(node, &msg);
}

static void log_try(struct peer *peer, const struct msg_log_read *request)
{
    char node[NODE_NAME_BYTES_MAX];

    if (find_node(peer->server, request, node))
        log_forward(peer, request, node);
    else
        log_nowhere(peer, request);
}

void log_request(struct peer *peer, const struct msg_log_read *request)
{
    char number[24];

    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)request->job_id);
    if (store_find_job(peer->server->store, number, peer_viewer(peer)) == 0)
        send_log(peer, request, true, "there is no such job");
    else
        log_try(peer, request);
}

bool wait_take_forwarded(const struct peer *node, enum waiter_kind kind, uint64_t forward_id,
                         struct waiter *waiter)
{
    struct server *server = node->server;

    for (uint32_t i = 0; i < server->waiter_count; i++) {
        const struct waiter *found = &server->waiters[i];

        if (found->kind != kind || found->forward_id != forward_id ||
            found->node_peer_id != node->id)
            continue;
        *waiter = take(server, i);
        arm(server);
        return true;
    }
    return false;
}

void log_answer(struct peer *node, const struct msg_log_data *data)
{
    struct msg msg = {.type = MSG_TYPE_LOG_DATA, .log_data = *data};
    struct waiter waiter;
    struct peer *peer;

    if (!wait_take_forwarded(node, WAIT_LOG_NODE, data->request_id, &waiter))
        return; /* too late: the client has been told to try again */
    peer = peer_find(node->server, waiter.peer_id);
    msg.log_data.request_id = waiter.log.request_id;
    if (peer != NULL)
        peer_send(peer, &msg);
}

/* Answers one waiter whose job has changed. True: it was removed or put off. */
static bool job_changed(struct server *server, uint32_t i)
{
    struct waiter *found = &server->waiters[i];
    struct peer *peer = peer_find(server, found->peer_id);
    char node[NODE_NAME_BYTES_MAX];
    struct waiter waiter;
    uint64_t now_us;

    if (found->kind == WAIT_JOB) {
        if (job_is_active(server, found->job_id) &&
            server->version_base + rdzv_job_version(server->core, found->job_id) <= found->after)
            return false;
        if (put_off(server, found))
            return true;
        waiter = take(server, i);
        if (peer != NULL)
            answer_job(peer, waiter.job_id, waiter.first_rank);
        return true;
    }
    if (found->kind != WAIT_LOG_RANK ||
        (job_is_active(server, found->job_id) && !find_node(server, &found->log, node)))
        return false;
    waiter = take(server, i);
    now_us = clock_boot_us();
    waiter.log.wait_us = waiter.deadline_us > now_us ? waiter.deadline_us - now_us : 0;
    if (peer != NULL)
        log_try(peer, &waiter.log);
    return true;
}

void wait_job_changed(struct server *server, uint64_t job_id)
{
    bool any = false;

    for (uint32_t i = server->waiter_count; i-- > 0;)
        if (i < server->waiter_count && server->waiters[i].job_id == job_id)
            any = job_changed(server, i) || any;
    if (any)
        arm(server);
}

void wait_events_changed(struct server *server)
{
    bool any = false;

    for (uint32_t i = server->waiter_count; i-- > 0;) {
        struct waiter *found = &server->waiters[i];
        struct peer *peer = peer_find(server, found->peer_id);

        if (found->kind != WAIT_EVENTS)
            continue;
        any = true;
        if (!put_off(server, found) &&
            (peer == NULL || answer_events(peer, found->job_id, found->after, found->limit, false)))
            (void)take(server, i);
    }
    if (any)
        arm(server);
}

static void node_gone(struct server *server, const struct waiter *waiter, const char *name)
{
    struct peer *peer = peer_find(server, waiter->peer_id);
    char problem[REASON_BYTES_MAX];

    (void)snprintf(problem, sizeof problem, "%s was disconnected; ask again when it is back", name);
    if (peer == NULL)
        return;
    if (waiter->kind == WAIT_NODE_DATA)
        answer_question_problem(peer, waiter->after, problem);
    else if (waiter->kind == WAIT_INPUT)
        answer_input_problem(peer, waiter->after, problem);
    else
        send_log(peer, &waiter->log, false, problem);
}

void wait_peer_gone(struct server *server, const struct peer *gone)
{
    for (uint32_t i = server->waiter_count; i-- > 0;) {
        struct waiter waiter;

        if (server->waiters[i].peer_id != gone->id && server->waiters[i].node_peer_id != gone->id)
            continue;
        waiter = take(server, i);
        if (waiter.node_peer_id == gone->id)
            node_gone(server, &waiter, gone->name);
    }
    arm(server);
}
