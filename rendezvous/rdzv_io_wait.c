/* Requests that wait: for a job's next version, for events, for a log on some node.
 *
 * Logs: the bytes are on the node that ran the rank. A log_read goes there under an id of ours and
 * its log_data comes back to the client under the client's id. While the rank has been nowhere yet
 * (queued, or a generation still to come) the request waits here; at the end of its wait it is
 * answered with no bytes, and the client asks again. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "rendezvous/rdzv_io_internal.h"

static void on_timer(uv_timer_t *timer);

static void arm(struct rdzv_io *io)
{
    uint64_t next_us = UINT64_MAX, now_us = clock_boot_us();

    for (uint32_t i = 0; i < io->waiter_count; i++)
        if (io->waiters[i].deadline_us < next_us)
            next_us = io->waiters[i].deadline_us;
    if (next_us == UINT64_MAX || io->is_stopping) {
        (void)uv_timer_stop(&io->wait_timer);
        return;
    }
    uv_update_time(io->loop);
    (void)uv_timer_start(&io->wait_timer, on_timer,
                         next_us > now_us ? (next_us - now_us + 999) / 1000 : 0, 0);
}

/* waiter->deadline_us comes in as a duration. */
bool wait_add(struct peer *peer, const struct waiter *waiter)
{
    struct rdzv_io *io = peer->io;
    struct waiter *place;

    if (io->waiter_count == WAITERS_MAX || peer->waiter_count >= WAITERS_PER_PEER_MAX) {
        peer_error(peer, "full", "wait for an answer before the next request",
                   "%u requests of this connection wait already, %u of all", peer->waiter_count,
                   io->waiter_count);
        return false;
    }
    place = &io->waiters[io->waiter_count++];
    *place = *waiter;
    place->peer_id = peer->id;
    place->deadline_us = clock_boot_us() + waiter->deadline_us;
    peer->waiter_count++;
    arm(io);
    return true;
}

/* Takes the i-th waiter out; another one takes its place in the table. */
static struct waiter take(struct rdzv_io *io, uint32_t i)
{
    struct waiter waiter = io->waiters[i];
    struct peer *peer = peer_find(io, waiter.peer_id);

    io->waiters[i] = io->waiters[--io->waiter_count];
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

/* The wait is over without what was waited for. */
static void answer_late(struct rdzv_io *io, const struct waiter *waiter)
{
    struct peer *peer = peer_find(io, waiter->peer_id);

    if (peer == NULL)
        return;
    switch (waiter->kind) {
    case WAIT_JOB:
        client_send_job(peer, waiter->job_id);
        break;
    case WAIT_EVENTS:
        (void)events_answer(peer, waiter->job_id, waiter->after, waiter->limit, true);
        break;
    case WAIT_LOG_RANK:
        send_log(peer, &waiter->log, false, "");
        break;
    case WAIT_LOG_NODE:
        send_log(peer, &waiter->log, false, "its node does not answer; ask again");
        break;
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct rdzv_io *io = timer->data;
    uint64_t now_us = clock_boot_us();

    for (uint32_t i = io->waiter_count; i-- > 0;) {
        if (i < io->waiter_count && io->waiters[i].deadline_us <= now_us) {
            struct waiter waiter = take(io, i);

            answer_late(io, &waiter);
        }
    }
    arm(io);
}

/* Where that rank ran in that generation. */
static bool find_node(struct rdzv_io *io, const struct msg_log_read *request,
                      char node[NODE_NAME_BYTES_MAX])
{
    const struct rdzv_record *record = rdzv_record(io->core, request->job_id);

    for (uint32_t i = 0;
         record != NULL && record->generation == request->generation && i < record->part_count;
         i++) {
        const struct rdzv_part *part = &record->parts[i];

        if (request->rank < part->rank_base || request->rank - part->rank_base >= part->local_count)
            continue;
        (void)snprintf(node, NODE_NAME_BYTES_MAX, "%s", part->node);
        return true;
    }
    return store_rank_node(io->store, request->job_id, request->generation, request->rank, node);
}

/* The rank is nowhere: it may come to be somewhere, or never. */
static void log_nowhere(struct peer *peer, const struct msg_log_read *request)
{
    struct rdzv_io *io = peer->io;
    const struct rdzv_record *record = rdzv_record(io->core, request->job_id);
    char problem[REASON_BYTES_MAX];

    if (job_is_active(io, request->job_id) &&
        request->rank < record->nodes * record->nproc_per_node &&
        request->generation >= record->generation) {
        (void)wait_add(peer, &(struct waiter){.kind = WAIT_LOG_RANK,
                                              .deadline_us = request->wait_us,
                                              .job_id = request->job_id,
                                              .log = *request});
        return;
    }
    (void)snprintf(problem, sizeof problem, "job %llu never had a rank %u in generation %u",
                   (unsigned long long)request->job_id, request->rank, request->generation);
    send_log(peer, request, true, problem);
}

static void log_forward(struct peer *peer, const struct msg_log_read *request, const char *name)
{
    struct rdzv_io *io = peer->io;
    struct peer *node = peer_find(io, rdzv_node_conn(io->core, name));
    struct msg msg = {.type = MSG_TYPE_LOG_READ, .log_read = *request};
    char problem[REASON_BYTES_MAX];

    if (node == NULL) {
        (void)snprintf(problem, sizeof problem,
                       "%s is not connected; its logs are on that machine, in the state directory "
                       "of its launcherd",
                       name);
        send_log(peer, request, false, problem);
        return;
    }
    msg.log_read.request_id = ++io->forward_serial;
    if (wait_add(peer, &(struct waiter){.kind = WAIT_LOG_NODE,
                                        .deadline_us = request->wait_us + LOG_ANSWER_US,
                                        .job_id = request->job_id,
                                        .log = *request,
                                        .node_peer_id = node->id,
                                        .forward_id = io->forward_serial}))
        peer_send(node, &msg);
}

static void log_try(struct peer *peer, const struct msg_log_read *request)
{
    char node[NODE_NAME_BYTES_MAX];

    if (find_node(peer->io, request, node))
        log_forward(peer, request, node);
    else
        log_nowhere(peer, request);
}

void log_request(struct peer *peer, const struct msg_log_read *request)
{
    char number[24];

    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)request->job_id);
    if (store_find_job(peer->io->store, number, peer_viewer(peer)) == 0)
        send_log(peer, request, true, "there is no such job");
    else
        log_try(peer, request);
}

void log_answer(struct peer *node, const struct msg_log_data *data)
{
    struct rdzv_io *io = node->io;

    for (uint32_t i = 0; i < io->waiter_count; i++) {
        const struct waiter *found = &io->waiters[i];
        struct msg msg = {.type = MSG_TYPE_LOG_DATA, .log_data = *data};
        struct waiter waiter;
        struct peer *peer;

        if (found->kind != WAIT_LOG_NODE || found->forward_id != data->request_id ||
            found->node_peer_id != node->id)
            continue;
        waiter = take(io, i);
        peer = peer_find(io, waiter.peer_id);
        msg.log_data.request_id = waiter.log.request_id;
        if (peer != NULL)
            peer_send(peer, &msg);
        arm(io);
        return;
    } /* else it came too late: the client was told to ask again */
}

/* One waiter whose job has changed. True: it was taken out. */
static bool job_changed(struct rdzv_io *io, uint32_t i)
{
    const struct waiter *found = &io->waiters[i];
    struct peer *peer = peer_find(io, found->peer_id);
    char node[NODE_NAME_BYTES_MAX];
    struct waiter waiter;
    uint64_t now_us;

    if (found->kind == WAIT_JOB) {
        if (job_is_active(io, found->job_id) &&
            io->version_base + rdzv_job_version(io->core, found->job_id) <= found->after)
            return false;
        waiter = take(io, i);
        if (peer != NULL)
            client_send_job(peer, waiter.job_id);
        return true;
    }
    if (found->kind != WAIT_LOG_RANK ||
        (job_is_active(io, found->job_id) && !find_node(io, &found->log, node)))
        return false;
    waiter = take(io, i);
    now_us = clock_boot_us();
    waiter.log.wait_us = waiter.deadline_us > now_us ? waiter.deadline_us - now_us : 0;
    if (peer != NULL)
        log_try(peer, &waiter.log);
    return true;
}

void wait_job_changed(struct rdzv_io *io, uint64_t job_id)
{
    bool any = false;

    for (uint32_t i = io->waiter_count; i-- > 0;)
        if (i < io->waiter_count && io->waiters[i].job_id == job_id)
            any = job_changed(io, i) || any;
    if (any)
        arm(io);
}

void wait_events_changed(struct rdzv_io *io)
{
    bool any = false;

    for (uint32_t i = io->waiter_count; i-- > 0;) {
        const struct waiter *found = &io->waiters[i];
        struct peer *peer = peer_find(io, found->peer_id);

        if (found->kind != WAIT_EVENTS ||
            (peer != NULL &&
             !events_answer(peer, found->job_id, found->after, found->limit, false)))
            continue;
        (void)take(io, i);
        any = true;
    }
    if (any)
        arm(io);
}

static void node_gone(struct rdzv_io *io, const struct waiter *waiter, const char *name)
{
    struct peer *peer = peer_find(io, waiter->peer_id);
    char problem[REASON_BYTES_MAX];

    (void)snprintf(problem, sizeof problem, "%s was disconnected; ask again when it is back", name);
    if (peer != NULL)
        send_log(peer, &waiter->log, false, problem);
}

void wait_peer_gone(struct rdzv_io *io, const struct peer *gone)
{
    for (uint32_t i = io->waiter_count; i-- > 0;) {
        struct waiter waiter;

        if (io->waiters[i].peer_id != gone->id && io->waiters[i].node_peer_id != gone->id)
            continue;
        waiter = take(io, i);
        if (waiter.node_peer_id == gone->id)
            node_gone(io, &waiter, gone->name);
    }
    arm(io);
}
