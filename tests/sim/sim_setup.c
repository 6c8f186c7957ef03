/* One run of the swarm, small or large: its machines, jobs and faults, by seed. */
#include "tests/sim/sim.h"

#include <signal.h>
#include <stdio.h>

#define SWARM_NODES_MAX 5u
#define SWARM_JOBS_MAX 10u
#define SWARM_ARRAY_MAX 4u
#define AGAIN_US (5 * SECOND_US)
#define CROWD_JOBS 30u
#define SMALL_JOBS (SWARM_JOBS_MAX * SWARM_ARRAY_MAX) /* at least CROWD_JOBS */
#define LARGE_NODES 64u
#define LARGE_SLOTS 8u
#define LARGE_JOBS 1000u
#define DRIFT_PPM_MAX 200u

/* Every fourth job may run on fewer nodes. This does not use the seed's random sequence, so the
 * rest of the run is the same with and without it. */
static uint32_t choose_least(const struct sim *sim, uint32_t index, uint32_t nodes)
{
    const uint64_t mixed = (sim->seed * 31 + index + 1) * UINT64_C(0x9e3779b97f4a7c15);

    return mixed >> 62 == 0 ? 1 + (uint32_t)(mixed >> 32 & 0xffff) % nodes : nodes;
}

/* In every fourth run, half of the jobs have spare nodes. */
static uint32_t choose_spares(const struct sim *sim, uint32_t index)
{
    const uint64_t mixed = (sim->seed * 43 + index + 5) * UINT64_C(0x9e3779b97f4a7c15);

    return sim->has_spares && mixed >> 63 == 0 ? 1 + (uint32_t)(mixed >> 60 & 1) : 0;
}

/* Every sixth job waits for up to three earlier jobs, if those were submitted by then. This does
 * not use the random sequence either. */
static void choose_after(const struct sim *sim, struct sim_client *client, uint32_t index)
{
    uint64_t mixed = (sim->seed * 37 + index + 7) * UINT64_C(0x9e3779b97f4a7c15);
    const uint32_t count = 1 + (uint32_t)(mixed >> 56) % SIM_AFTER_MAX;

    if (index == 0 || (mixed >> 40) % 6 != 0)
        return;
    for (uint32_t i = 0; i < count; i++) {
        client->after[i].client = 1 + (uint32_t)(mixed >> 32 & 0xff) % index;
        client->after[i].any = (mixed >> 50 & 1) != 0;
        mixed = (mixed + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    }
}

/* Every fifth client submits an array, every other time limit has a warning, half of the jobs with
 * a time limit go back into the queue when it is over, a third of the programs repeat their
 * progress reports, and half of those that fail say the same each time. This does not use the random sequence either. */
static void choose_more(const struct sim *sim, struct sim_client *client, uint32_t index)
{
    const uint64_t mixed = (sim->seed * 43 + index + 11) * UINT64_C(0x9e3779b97f4a7c15);

    if ((mixed >> 40) % 5 == 0) {
        client->array_count = 1 + (uint32_t)(mixed >> 33) % SWARM_ARRAY_MAX;
        client->array_at_most = (uint32_t)(mixed >> 37) % SWARM_ARRAY_MAX;
    }
    client->again_us = (mixed >> 45) % 3 == 0 ? AGAIN_US : 0;
    client->says_why = client->fails && (mixed >> 54 & 1) != 0;
    client->requeues = client->time_limit_us != 0 && (mixed >> 52 & 1) != 0;
    if (client->requeues) { /* most of these run longer than their limit */
        client->steps += 30;
        client->time_limit_us = (4 + (mixed >> 53 & 7)) * SECOND_US;
    }
    if (client->time_limit_us != 0 && (mixed >> 50 & 1) != 0)
        client->warn_us =
            SECOND_US + (mixed >> 20 & 0xffff) * SECOND_US / 1024 % (client->time_limit_us);
}

/* With preemption, priorities differ more. */
static int32_t choose_priority(const struct sim *sim, uint32_t index, int32_t drawn)
{
    const uint64_t mixed = (sim->seed * 41 + index + 3) * UINT64_C(0x9e3779b97f4a7c15);

    return sim->preempts ? -(int32_t)(mixed >> 33 & 3) : drawn;
}

static void choose_job(struct sim *sim, uint32_t index, bool is_large)
{
    struct sim_client *client = &sim->clients[index];
    const bool is_long = sim_chance(sim, 300);
    const uint32_t nodes_max = is_large ? (sim_chance(sim, 20) ? LARGE_NODES : 4) : sim->node_count;

    *client = (struct sim_client){
        .nodes = 1 + (uint32_t)sim_draw(sim, nodes_max),
        .nproc = 1 + (uint32_t)sim_draw(sim, sim->slots),
        .joins = sim_chance(sim, 600),
        .fails = sim_chance(sim, 100),
        .steps = 1 + (uint32_t)sim_draw(sim, is_long ? 150 : 30),
        .max_restarts = (uint32_t)sim_draw(sim, 12),
        .priority = sim_chance(sim, 200) ? -(int32_t)sim_draw(sim, 3) : 0,
        .time_limit_us = sim_chance(sim, 200) ? (5 + sim_draw(sim, 60)) * SECOND_US : 0,
        .grace_us = sim_draw(sim, 4) * SECOND_US,
        .submit_at_us = sim->now_us + sim_draw(sim, sim->faults.until_us - sim->now_us),
        .cancel_at_us = UINT64_MAX,
        .cancel_signal = sim_chance(sim, 500) ? SIGTERM : SIGINT,
        .cancel_grace_us = sim_chance(sim, 500) ? -1 : (int64_t)sim_draw(sim, 5 * SECOND_US),
    };
    client->nodes_min = choose_least(sim, index, client->nodes);
    client->spares = choose_spares(sim, index);
    choose_after(sim, client, index);
    client->priority = choose_priority(sim, index, client->priority);
    if (sim_chance(sim, 150))
        client->cancel_at_us = client->submit_at_us + sim_draw(sim, 60 * SECOND_US);
    if (is_large)
        client->steps = 1 + client->steps / 5;
    if (client->fails && sim_chance(sim, 500))
        client->steps = 2; /* it fails before its first checkpoint, so that the back-off grows */
    (void)snprintf(client->request_id, sizeof client->request_id, "%016llx%016llx",
                   (unsigned long long)sim->seed, (unsigned long long)index);
}

/* Many short jobs come at once, most of them small. */
static void choose_crowded(struct sim *sim, struct sim_client *client)
{
    const bool is_wide = sim_chance(sim, 200);

    client->nodes = is_wide ? sim->node_count : 1;
    client->nodes_min = client->nodes;
    client->nproc = is_wide ? sim->slots : 1 + (uint32_t)sim_draw(sim, 2) % sim->slots;
    client->steps = 1 + client->steps % 12;
    client->time_limit_us = 0;
    client->submit_at_us = sim->now_us + sim_draw(sim, 20 * SECOND_US);
}

static void choose_jobs(struct sim *sim, const struct sim_mask *mask, bool is_large, bool is_crowd)
{
    const uint32_t count = is_large   ? LARGE_JOBS
                           : is_crowd ? CROWD_JOBS
                                      : 1 + (uint32_t)sim_draw(sim, SWARM_JOBS_MAX);

    for (uint32_t i = 0; i < count; i++) {
        choose_job(sim, sim->client_count, is_large);
        if (is_crowd)
            choose_crowded(sim, &sim->clients[sim->client_count]);
        else if (!is_large)
            choose_more(sim, &sim->clients[sim->client_count], sim->client_count);
        if (i >= SIM_CLIENTS_MASKED_MAX || !mask->clients[i])
            client_start(sim, sim->client_count++);
    }
}

static int32_t drift_ppm(struct sim *sim)
{
    int32_t ppm = (int32_t)sim_draw(sim, 2 * DRIFT_PPM_MAX + 1) - (int32_t)DRIFT_PPM_MAX;

    return sim->faults.amount[FAULT_DRIFT] > 0 ? ppm : 0;
}

void sim_init(struct sim *sim, uint64_t seed, const struct sim_mask *mask, bool is_large)
{
    bool is_crowd;
    static const uint64_t leases_us[] = {20 * SECOND_US, 30 * SECOND_US, 60 * SECOND_US};
    const struct sim_size size = {.nodes = is_large ? LARGE_NODES : SWARM_NODES_MAX,
                                  .slots = is_large ? LARGE_SLOTS : 4,
                                  .jobs = is_large ? LARGE_JOBS : SMALL_JOBS,
                                  .conns = is_large ? 262144 : 4096,
                                  .check_interval_us = is_large ? SECOND_US : 50000,
                                  .core_check_interval = is_large ? 211 : 1,
                                  .cleanup_us = 220 * SECOND_US,
                                  .bound_us = is_large ? 20000 * SECOND_US : 2500 * SECOND_US,
                                  .spinning = is_large ? 1000000 : 20000};

    sim_begin(sim, seed, &size);
    sim->node_count = is_large ? LARGE_NODES : 2 + (uint32_t)sim_draw(sim, SWARM_NODES_MAX - 1);
    sim->slots = is_large ? LARGE_SLOTS : 1 + (uint32_t)sim_draw(sim, size.slots);
    sim->preempts = seed % 2 == 0;
    sim->has_spares = seed / 2 % 4 == 1;
    sim->lease_us = leases_us[sim_draw(sim, 3)];
    is_crowd = !is_large && sim_chance(sim, 100);
    faults_choose(sim, mask);
    sim->server.clock.drift_ppm = drift_ppm(sim);
    for (uint32_t i = 0; i < sim->node_count; i++) {
        struct sim_node *node = &sim->nodes[i];

        node->clock.drift_ppm = drift_ppm(sim);
        node->clock.offset_us = SECOND_US + sim_draw(sim, 100000 * SECOND_US);
        if (sim_chance(sim, 600) && !is_crowd)
            node->gpu_count = sim_chance(sim, 800) ? sim->slots : 1;
    }
    choose_jobs(sim, mask, is_large, is_crowd);
    server_start(sim);
    for (uint32_t i = 0; i < sim->node_count; i++)
        node_start(sim, i);
}
