/* One large run: 256 nodes, and 512 jobs that fill every slot, one of them with a rank on every
 * node. All nodes are cut off at the same time, are lost in one tick of the server, come back at
 * the same time, and all reconnect to a new server. Then many jobs are cancelled at once, and the
 * others run to their end. */
#include "tests/sim/sim.h"

#include <stdio.h>

#define NODES 256u
#define JOBS 512u
#define NODES_PER_JOB 8u
#define SLOTS (JOBS * NODES_PER_JOB / NODES + 1) /* the last slot is for the job on all nodes */
#define CUT_US (20 * SECOND_US)
#define LEASE_US (NODE_LOST_US + SECOND_US) /* all are silent: lost when the lease ends */
#define REJOIN_US (CUT_US + LEASE_US + 5 * SECOND_US)
#define KILL_US (REJOIN_US + 5 * SECOND_US)
#define CANCEL_US (KILL_US + 10 * SECOND_US)

static void cut_all(struct sim *sim, const struct sim_event *event)
{
    uint32_t running = 0;

    (void)event;
    for (uint32_t i = 0; i < sim->disk.row_count; i++)
        running += sim->disk.written[i].record.state == JOB_RUNNING;
    if (running != JOBS)
        sim_fail(sim, "outcome", "%u of %u jobs run when they are cut off", running, JOBS);
    for (uint32_t i = 0; i < sim->node_count; i++)
        sim->nodes[i].cut_to_server = sim->nodes[i].cut_to_node = true;
}

static void rejoin_all(struct sim *sim, const struct sim_event *event)
{
    uint32_t running = 0;

    (void)event;
    for (uint32_t i = 0; i < sim->disk.row_count; i++)
        running += sim->disk.written[i].record.state == JOB_RUNNING;
    if (running != 0)
        sim_fail(sim, "outcome", "%u jobs run on nodes that were lost", running);
    for (uint32_t i = 0; i < sim->node_count; i++)
        sim->nodes[i].cut_to_server = sim->nodes[i].cut_to_node = false;
}

static void start_again(struct sim *sim, const struct sim_event *event)
{
    (void)event;
    server_start(sim);
}

static void kill_server(struct sim *sim, const struct sim_event *event)
{
    (void)event;
    server_kill(sim);
    sim_at(sim, sim->now_us + 2 * SECOND_US, (struct sim_event){.run = start_again});
}

void sim_init_limits(struct sim *sim)
{
    static const struct sim_size size = {.nodes = NODES,
                                         .slots = SLOTS,
                                         .jobs = JOBS,
                                         .conns = 65536,
                                         .check_interval_us = 2 * SECOND_US,
                                         .core_check_interval = 101,
                                         .cleanup_us = 5 * SECOND_US,
                                         .bound_us = 1500 * SECOND_US,
                                         .spinning = 1000000};

    sim_begin(sim, 1, &size);
    sim->node_count = NODES;
    sim->slots = SLOTS;
    sim->lease_us = LEASE_US;
    sim->faults.until_us = CANCEL_US;
    server_start(sim);
    for (uint32_t i = 0; i < sim->node_count; i++)
        node_start(sim, i);
    sim->client_count = JOBS;
    for (uint32_t i = 0; i < sim->client_count; i++) {
        struct sim_client *client = &sim->clients[i];

        *client = (struct sim_client){
            .nodes = i == 1 ? NODES : NODES_PER_JOB,
            .nproc = 1,
            .joins = i % 2 == 0,
            .steps = 45, /* of 0.45 s each: all jobs still train when the nodes are cut off */
            .max_restarts = 5,
            .grace_us = 2 * SECOND_US,
            .cancel_signal = 15,
            .cancel_grace_us = -1,
            .submit_at_us = sim->now_us + (i == 1 ? 1 : 2) * SECOND_US + /* the widest job first */
                            sim_draw(sim, SECOND_US),
            .cancel_at_us = i % 4 == 0 ? CANCEL_US : UINT64_MAX,
        };
        (void)snprintf(client->request_id, sizeof client->request_id, "%032x", i);
        client_start(sim, i);
    }
    sim_at(sim, CUT_US, (struct sim_event){.run = cut_all});
    sim_at(sim, REJOIN_US, (struct sim_event){.run = rejoin_all});
    sim_at(sim, KILL_US, (struct sim_event){.run = kill_server});
}
