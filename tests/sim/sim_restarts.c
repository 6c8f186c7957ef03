/* Restarts of the server change no job's end: a seed runs once without any fault, and once with a server that dies and
 * starts again, in half of the cases between two of its actions. It is never away for as long as a lease. The jobs are
 * chosen so that their ends depend on nothing else: a limit or a cancel comes long before the job could end.
 *
 * And where the server is restarted at a quiet point, nothing else changes: each job gets the same orders, in the same
 * sequence. Both runs have no chance then, and these differences are intended, so such runs leave them out:
 * - Which of the nodes with room a job gets: the server knows them in the order in which they called. Nodes are not compared.
 * - An order that is sent again once its node has called. Repetitions are not compared.
 * - After a restart the server waits for nodes before it preempts, or starts an elastic job smaller (settled_at_us). There
 *   is neither here.
 * - A failure within seconds of the restart: its part is told as ended with the hello, so it gets no stop, and without a
 *   step told to this server it does not count as the same as those before (seed 75). Such a point is not quiet.
 *
 * Every launcherd says which state directory it has. Of one that does not, as those of protocol 2, a restarted server
 * cannot know whether it is the one that it gave a part to. So a start order that was lost with the server costs the job a
 * restart there, or its end without restarts (seed 1141). */
#include "tests/sim/sim.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define NODES 4u
#define SLOTS 4u
#define CLIENTS 9u
#define KILLS 6u
#define AHEAD_US (5 * SECOND_US) /* nodes have called again by then */
#define STEP_US 450000u          /* of a worker, without chance */
#define SPACE_US (8 * SECOND_US) /* an earlier job is mostly acknowledged by then */

static void start_server(struct sim *sim, const struct sim_event *event)
{
    (void)event;
    sim->server.tear = 0;
    if (!sim->server.alive)
        server_start(sim);
}

static void kill_server(struct sim *sim, const struct sim_event *event)
{
    const uint64_t random = sim->random;

    if (!sim->server.alive)
        return;
    sim->random = event->asked_us;
    if (sim_chance(sim, 500))
        sim->server.tear = 1 + (uint32_t)sim_draw(sim, 6);
    else
        server_kill(sim);
    sim_at(sim, sim->now_us + sim_draw(sim, 3 * SECOND_US),
           (struct sim_event){.run = start_server});
    sim->random = random;
}

/* The same job without the restarts, and with them. */
static void choose_client(struct sim *sim, uint32_t index)
{
    struct sim_client *client = &sim->clients[index];
    const uint64_t kind = sim_draw(sim, 10);

    *client = (struct sim_client){
        .nodes = 1 + (uint32_t)sim_draw(sim, sim->node_count),
        .nproc = 1 + (uint32_t)sim_draw(sim, sim->slots),
        .joins = sim_chance(sim, 500),
        .steps = 1 + (uint32_t)sim_draw(sim, 40),
        .max_restarts = (uint32_t)sim_draw(sim, 4),
        .priority = -(int32_t)sim_draw(sim, 3),
        .grace_us = sim_draw(sim, 4) * SECOND_US,
        .submit_at_us = sim->now_us + index * SPACE_US + sim_draw(sim, SECOND_US),
        .cancel_at_us = UINT64_MAX,
        .cancel_signal = SIGTERM,
        .cancel_grace_us = -1,
    };
    client->nodes_min = sim_chance(sim, 250) ? 1 : client->nodes;
    client->fails = kind < 2;
    client->says_why = kind == 0;
    if (kind == 2 || kind == 3) { /* ends at its limit */
        client->steps = 200;
        client->time_limit_us = (4 + sim_draw(sim, 6)) * SECOND_US;
    } else if (kind == 4) { /* goes on after each limit, from its checkpoint */
        client->steps = 60;
        client->time_limit_us = 8 * SECOND_US;
        client->requeues = true;
    } else if (kind == 5) {
        client->steps = 400;
        client->cancel_at_us = client->submit_at_us + SPACE_US + sim_draw(sim, 10 * SECOND_US);
    } else if (kind > 7 && index > 0) {
        client->after[0].client = 1 + (uint32_t)sim_draw(sim, index);
        client->after[0].any = sim_chance(sim, 500);
        client->after_is_sure =
            true; /* else one run has the condition, and the other may not (seed 7289) */
    }
    (void)snprintf(client->request_id, sizeof client->request_id, "%016llx%016llx",
                   (unsigned long long)sim->seed, (unsigned long long)index);
}

/* Some worker has ended and not all know it, or will end before its node has called a restarted server. */
static bool ends_soon(const struct sim *sim)
{
    for (uint32_t n = 0; n < sim->node_count; n++)
        for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++) {
            const struct sim_shim *shim = &sim->nodes[n].shims[s];

            for (uint32_t w = 0; shim->used && w < shim->local_count; w++)
                if (!shim->workers[w].alive ||
                    shim->workers[w].steps_left * (uint64_t)STEP_US < AHEAD_US)
                    return true;
        }
    return false;
}

/* All that was asked for is acknowledged, no message is on its way, and each job waits, runs or has ended. */
static bool is_quiet(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->client_count; i++) {
        const struct sim_client *client = &sim->clients[i];

        if ((!client->acked && client->submit_at_us < sim->now_us + AHEAD_US) ||
            (!client->cancel_acked && client->cancel_at_us < sim->now_us + AHEAD_US))
            return false;
    }
    for (uint32_t i = 1; i < sim->conn_count; i++)
        if (sim->conns[i].to_near.first != NULL || sim->conns[i].to_far.first != NULL)
            return false;
    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        const struct rdzv_record *record = &sim->disk.written[i].record;

        if (record->stopping != 0 || (record->state != JOB_RUNNING && record->state != JOB_QUEUED &&
                                      !rdzv_state_is_final(record->state)))
            return false;
    }
    return !ends_soon(sim);
}

static void restart_quietly(struct sim *sim, const struct sim_event *event)
{
    if (!is_quiet(sim)) {
        sim_at(sim, sim->now_us + 20000, *event);
        return;
    }
    sim->quiet_count++;
    server_kill(sim);
    server_start(sim);
}

/* But for the node. */
static bool is_same(const struct sim_order *a, const struct sim_order *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    return a->type == b->type && a->generation == b->generation && a->job_id == b->job_id &&
           a->what[0] == b->what[0] && a->what[1] == b->what[1];
}

void restarts_note_order(struct sim *sim, uint32_t node, const struct msg *msg)
{
    struct sim_orders *orders = sim->orders;
    struct sim_order order = {.type = msg->type, .node = node};

    if (orders == NULL)
        return;
    if (msg->type == MSG_TYPE_START) {
        order.job_id = msg->start.job_id;
        order.generation = msg->start.generation;
        order.what[0] = msg->start.rank_base;
        order.what[1] = msg->start.local_count;
    } else if (msg->type == MSG_TYPE_GO) {
        order.job_id = msg->go.job_id;
        order.generation = msg->go.generation;
    } else if (msg->type == MSG_TYPE_WORLD) {
        order.job_id = msg->world.job_id;
        order.generation = msg->world.generation;
    } else if (msg->type == MSG_TYPE_STOP) {
        order.job_id = msg->stop.job_id;
        order.generation = msg->stop.generation;
        order.what[0] = msg->stop.signal;
        order.what[1] = msg->stop.grace_us;
    } else if (msg->type == MSG_TYPE_FORGET) {
        order.job_id = msg->forget.job_id;
        order.generation = msg->forget.generation;
    } else {
        return;
    }
    for (uint32_t i = 0; i < orders->count; i++)
        if (orders->items[i].node == node && is_same(&orders->items[i], &order))
            return; /* repeated, as after each connection */
    assert(orders->count < SIM_ORDERS_MAX);
    orders->items[orders->count++] = order;
}

/* The next order of a client's job after the first `*at`. NULL: none. */
static const struct sim_order *next_of(const struct sim_orders *orders,
                                       const struct sim_client *client, uint32_t *at)
{
    while (*at < orders->count) {
        const struct sim_order *order = &orders->items[(*at)++];

        if (order->job_id == client->job_id)
            return order;
    }
    return NULL;
}

static void compare_job(struct sim *sim, const struct sim_orders *before,
                        const struct sim_client *client)
{
    const struct sim_order *a, *b;
    uint32_t at_a = 0, at_b = 0;

    do {
        a = next_of(before, client, &at_a);
        b = next_of(sim->orders, client, &at_b);
        if (!is_same(a, b))
            sim_fail(sim, "restarts",
                     "job %llu: node%d gets %s of g%u, and with restarts of the server at %u quiet "
                     "points "
                     "node%d gets %s of g%u",
                     (unsigned long long)client->job_id, a == NULL ? -1 : (int)a->node,
                     a == NULL ? "nothing" : msg_type_name(a->type), a == NULL ? 0 : a->generation,
                     sim->quiet_count, b == NULL ? -1 : (int)b->node,
                     b == NULL ? "nothing" : msg_type_name(b->type), b == NULL ? 0 : b->generation);
    } while (a != NULL && b != NULL);
}

void restarts_compare_orders(struct sim *sim, const struct sim_orders *before)
{
    for (uint32_t i = 0; i < sim->client_count; i++)
        compare_job(sim, before, &sim->clients[i]);
}

void sim_init_restarts(struct sim *sim, uint64_t seed, enum sim_restarts restarts, bool is_even)
{
    static const struct sim_size size = {.nodes = NODES,
                                         .slots = SLOTS,
                                         .jobs = CLIENTS,
                                         .conns = 2048,
                                         .check_interval_us = 50000,
                                         .core_check_interval = 1,
                                         .cleanup_us = 220 * SECOND_US,
                                         .bound_us = 2500 * SECOND_US,
                                         .spinning = 20000};

    sim_begin(sim, seed, &size);
    sim->node_count = 1 + (uint32_t)sim_draw(sim, NODES);
    sim->slots = 1 + (uint32_t)sim_draw(sim, SLOTS);
    sim->preempts = seed % 2 == 0 && !is_even;
    sim->tell_ids = true;
    sim->faults.late_max_us = 1 + sim_draw(sim, 100000);
    sim->faults.until_us = sim->now_us + 120 * SECOND_US;
    sim->client_count = 2 + (uint32_t)sim_draw(sim, CLIENTS - 1);
    for (uint32_t i = 0; i < sim->client_count; i++)
        choose_client(sim, i);
    for (uint32_t i = 0; i < KILLS; i++) {
        const uint64_t at_us = sim->now_us + sim_draw(sim, 120 * SECOND_US);
        const uint64_t random = sim_draw(sim, UINT64_MAX);

        if (restarts == RESTARTS_ANY)
            sim_at(sim, at_us, (struct sim_event){.run = kill_server, .asked_us = random});
        if (restarts == RESTARTS_QUIET)
            sim_at(sim, at_us, (struct sim_event){.run = restart_quietly});
    }
    for (uint32_t i = 0; i < sim->client_count && is_even; i++)
        sim->clients[i].nodes_min = sim->clients[i].nodes;
    sim->is_even = is_even;
    for (uint32_t i = 0; i < sim->client_count; i++)
        client_start(sim, i);
    for (uint32_t i = 0; i < sim->node_count; i++)
        sim->nodes[i].clock.offset_us = SECOND_US + sim_draw(sim, 100000 * SECOND_US);
    server_start(sim);
    for (uint32_t i = 0; i < sim->node_count; i++)
        node_start(sim, i);
}

void sim_note_ends(const struct sim *sim, struct sim_ends *ends)
{
    ends->count = sim->client_count;
    for (uint32_t i = 0; i < sim->client_count; i++) {
        const struct sim_row *row = disk_row(sim, sim->clients[i].job_id);

        ends->items[i] = row == NULL ? (struct sim_end){.state = JOB_QUEUED}
                                     : (struct sim_end){.state = row->record.state,
                                                        .exit_code = row->record.exit_code,
                                                        .signal = row->record.signal};
    }
}

void sim_compare_ends(struct sim *sim, const struct sim_ends *before)
{
    struct sim_ends after = {.count = 0};

    sim_note_ends(sim, &after);
    for (uint32_t i = 0; i < before->count; i++) {
        const struct sim_end *a = &before->items[i], *b = &after.items[i];

        if (a->state != b->state || a->exit_code != b->exit_code || a->signal != b->signal)
            sim_fail(sim, "restarts",
                     "request %u ends as %s, %d, signal %u, and with restarts of the server as %s, "
                     "%d, signal %u",
                     i, job_state_name(a->state), a->exit_code, a->signal, job_state_name(b->state),
                     b->exit_code, b->signal);
    }
}
