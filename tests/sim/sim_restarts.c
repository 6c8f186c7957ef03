/* Restarts of the server change no job's end: a seed runs once without any fault, and once with a server that dies and
 * starts again, in half of the cases between two of its actions. It is never away for as long as a lease. The jobs are
 * chosen so that their ends depend on nothing else: a limit or a cancel comes long before the job could end.
 *
 * Every launcherd says which state directory it has. Of one that does not, as those of protocol 2, a restarted server
 * cannot know whether it is the one that it gave a part to. So a start order that was lost with the server costs the job a
 * restart there, or its end without restarts (seed 1141). */
#include "tests/sim/sim.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define NODES 4u
#define SLOTS 4u
#define CLIENTS 9u
#define KILLS 6u
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

void sim_init_restarts(struct sim *sim, uint64_t seed, bool with_restarts)
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
    sim->preempts = seed % 2 == 0;
    sim->tell_ids = true;
    sim->faults.late_max_us = 1 + sim_draw(sim, 100000);
    sim->faults.until_us = sim->now_us + 120 * SECOND_US;
    sim->client_count = 2 + (uint32_t)sim_draw(sim, CLIENTS - 1);
    for (uint32_t i = 0; i < sim->client_count; i++)
        choose_client(sim, i);
    for (uint32_t i = 0; i < KILLS; i++) {
        const uint64_t at_us = sim->now_us + sim_draw(sim, 120 * SECOND_US);
        const uint64_t random = sim_draw(sim, UINT64_MAX);

        if (with_restarts)
            sim_at(sim, at_us, (struct sim_event){.run = kill_server, .asked_us = random});
    }
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
