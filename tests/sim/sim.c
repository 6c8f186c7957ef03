#include "tests/sim/sim.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_US 1000000ull
#define SWARM_NODES_MAX 5u
#define SWARM_JOBS_MAX 8u
#define BOUND_US (1500 * SECOND_US) /* after the last fault: every job has ended by then */

uint64_t sim_draw(struct sim *sim, uint64_t below)
{
    uint64_t z = sim->random += 0x9e3779b97f4a7c15u; /* splitmix64, Steele et al. 2014 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return below == 0 ? 0 : z % below;
}

bool sim_chance(struct sim *sim, uint32_t per_mille)
{
    return sim_draw(sim, 1000) < per_mille;
}

void sim_note(struct sim *sim, const char *format, ...)
{
    char *line = sim->trace[sim->trace_count++ % 256];
    va_list args;
    int used = snprintf(line, sizeof sim->trace[0], "[%10.6f] ", (double)sim->now_us / 1e6);

    va_start(args, format);
    (void)vsnprintf(line + used, sizeof sim->trace[0] - (size_t)used, format, args);
    va_end(args);
    for (const char *c = line; *c != '\0'; c++)
        sim->hash = (sim->hash ^ (uint8_t)*c) * 0x100000001b3u; /* FNV-1a */
    if (sim->verbose)
        puts(line);
}

/* The state of everything, after the trace. */
static void dump(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->row_count; i++) {
        const struct rdzv_record *record = &sim->rows[i].record;

        if (record->ended_ms == 0)
            printf("  stored: job %llu %s g%u, %u parts, %s\n", (unsigned long long)record->job_id,
                   job_state_name(record->state), record->generation, record->part_count,
                   record->reason);
    }
    for (uint32_t n = 0; n < sim->node_count; n++) {
        const struct launcher *core = &sim->nodes[n].core;

        printf("  node%u: launcherd %s, server %s, cut off %d\n", n,
               sim->nodes[n].alive ? "alive" : "dead", core->welcomed ? "welcomed" : "not there",
               sim->nodes[n].cut_off);
        for (uint32_t i = 0; i < sim->nodes[n].gpu_count; i++)
            printf("    slot %u is %s: %s\n", i, slot_state_name(core->slots[i].state),
                   core->slots[i].reason);
        for (uint32_t i = 0; i < core->shim_count; i++)
            printf("    knows job %llu g%u %s, dead %d, connected %d, reported %d, acked %u/%u\n",
                   (unsigned long long)core->shims[i].job_id, core->shims[i].generation,
                   shim_phase_name(core->shims[i].phase), core->shims[i].dead,
                   core->shims[i].connected, core->shims[i].reported, core->shims[i].acked,
                   core->shims[i].revision);
        for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++)
            if (sim->nodes[n].shims[i].used)
                printf("    has job %llu g%u %s, alive %d, revision %u, acked %u\n",
                       (unsigned long long)sim->nodes[n].shims[i].job_id,
                       sim->nodes[n].shims[i].generation,
                       shim_phase_name(sim->nodes[n].shims[i].core.phase),
                       sim->nodes[n].shims[i].alive, sim->nodes[n].shims[i].core.revision,
                       sim->nodes[n].shims[i].core.acked);
    }
}

void sim_fail(struct sim *sim, const char *format, ...)
{
    char text[256];
    va_list args;
    uint32_t first = sim->trace_count > 256 ? sim->trace_count - 256 : 0;

    if (sim->failed)
        return;
    sim->failed = true;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!sim->verbose)
        for (uint32_t i = first; i < sim->trace_count; i++)
            puts(sim->trace[i % 256]);
    printf("seed %llu: at %.6f s: %s\n", (unsigned long long)sim->seed, (double)sim->now_us / 1e6,
           text);
    dump(sim);
}

/* A binary heap, by time, then by insertion. */
static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void swap(struct sim_event *a, struct sim_event *b)
{
    struct sim_event c = *a;

    *a = *b;
    *b = c;
}

static void sift_up(struct sim *sim, uint32_t i)
{
    for (; i > 0 && is_before(&sim->heap[i], &sim->heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&sim->heap[i], &sim->heap[(i - 1) / 2]);
}

static void sift_down(struct sim *sim)
{
    uint32_t i = 0;

    for (;;) {
        uint32_t least = i;

        for (uint32_t child = 2 * i + 1; child <= 2 * i + 2 && child < sim->heap_count; child++)
            if (is_before(&sim->heap[child], &sim->heap[least]))
                least = child;
        if (least == i)
            return;
        swap(&sim->heap[i], &sim->heap[least]);
        i = least;
    }
}

void sim_at(struct sim *sim, uint64_t at_us, struct sim_event event)
{
    if (sim->heap_count == sim->heap_capacity) {
        sim->heap_capacity = sim->heap_capacity == 0 ? 1024 : 2 * sim->heap_capacity;
        sim->heap = realloc(sim->heap, sim->heap_capacity * sizeof *sim->heap);
        if (sim->heap == NULL)
            abort();
    }
    event.at_us = at_us < sim->now_us ? sim->now_us : at_us;
    event.order = ++sim->order;
    sim->heap[sim->heap_count++] = event;
    sift_up(sim, sim->heap_count - 1);
}

bool sim_all_ended(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->client_count; i++) {
        const struct sim_row *row = store_row(sim, sim->clients[i].job_id);

        if (!sim->clients[i].acked || row == NULL || row->record.ended_ms == 0)
            return false;
    }
    return true;
}

static void check_spinning(struct sim *sim)
{
    if (sim->now_us - sim->second_start_us >= SECOND_US) {
        sim->second_start_us = sim->now_us;
        sim->second_events = 0;
    }
    if (++sim->second_events == sim->size.spinning)
        sim_fail(sim, "%u events within a second: some timer spins", sim->size.spinning);
}

void sim_run(struct sim *sim)
{
    uint64_t grace_end_us = UINT64_MAX;

    while (sim->heap_count > 0 && !sim->failed) {
        struct sim_event event = sim->heap[0];

        sim->heap[0] = sim->heap[--sim->heap_count];
        sift_down(sim);
        sim->now_us = event.at_us;
        sim->event_total++;
        check_spinning(sim);
        event.run(sim, &event);
        check_all(sim);
        if (sim->now_us > sim->faults.until_us + BOUND_US)
            sim_fail(sim, "not every job has ended %llu s after the last fault",
                     BOUND_US / SECOND_US);
        if (grace_end_us == UINT64_MAX && sim->now_us > sim->faults.until_us &&
            sim->event_total % sim->size.check_interval == 0 && sim_all_ended(sim))
            grace_end_us = sim->now_us + sim->size.cleanup_us;
        if (sim->now_us > grace_end_us)
            break;
    }
    if (!sim->failed)
        check_end(sim);
}

/* -- faults ------------------------------------------------------------------------------------ */

/* Mostly a quick restart, sometimes longer than a lease. */
static uint64_t down_us(struct sim *sim)
{
    return sim_draw(sim, sim_chance(sim, 150) ? 90 * SECOND_US : 4 * SECOND_US);
}

static void restart_server(struct sim *sim, const struct sim_event *event)
{
    (void)event;
    sim->server.tear = 0;
    if (!sim->server.alive)
        server_start(sim);
}

static void kill_server(struct sim *sim, const struct sim_event *event)
{
    (void)event;
    if (!sim->server.alive)
        return;
    if (sim->faults.torn_steps && sim_chance(sim, 500))
        sim->server.tear = 1 + (uint32_t)sim_draw(sim, 5);
    else
        server_kill(sim);
    sim_at(sim, sim->now_us + down_us(sim), (struct sim_event){.run = restart_server});
}

static void restart_node(struct sim *sim, const struct sim_event *event)
{
    if (!sim->nodes[event->node].alive)
        node_start(sim, event->node);
}

static void kill_node(struct sim *sim, const struct sim_event *event)
{
    uint32_t node = (uint32_t)sim_draw(sim, sim->node_count);

    (void)event;
    if (!sim->nodes[node].alive)
        return;
    node_kill(sim, node);
    sim_at(sim, sim->now_us + down_us(sim), (struct sim_event){.run = restart_node, .node = node});
}

static void kill_shim(struct sim *sim, const struct sim_event *event)
{
    uint32_t node = (uint32_t)sim_draw(sim, sim->node_count);
    uint32_t first = (uint32_t)sim_draw(sim, SIM_SHIMS_MAX);

    (void)event;
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++) {
        uint32_t shim = (first + i) % SIM_SHIMS_MAX;

        if (sim->nodes[node].shims[shim].alive) {
            shim_kill(sim, node, shim);
            return;
        }
    }
}

static void kill_worker(struct sim *sim, const struct sim_event *event)
{
    uint32_t skip = (uint32_t)sim_draw(sim, 16);

    (void)event;
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t n = 0; n < sim->node_count; n++)
            for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++)
                for (uint32_t w = 0; w < SIM_WORKERS_MAX; w++)
                    if (sim->nodes[n].shims[s].alive && sim->nodes[n].shims[s].workers[w].alive &&
                        skip-- == 0) {
                        worker_kill(sim, n, s, w);
                        return;
                    }
}

static void cut(struct sim *sim, const struct sim_event *event)
{
    uint32_t conn = sim->nodes[sim_draw(sim, sim->node_count)].conn;

    (void)event;
    if (conn == 0)
        return;
    if (sim_chance(sim, 500))
        net_break(sim, conn);
    else
        net_close(sim, conn, sim_chance(sim, 500));
}

static void rejoin(struct sim *sim, const struct sim_event *event)
{
    sim_note(sim, "node%u is reachable again", event->node);
    sim->nodes[event->node].cut_off = false;
}

static void isolate(struct sim *sim, const struct sim_event *event)
{
    uint32_t node = (uint32_t)sim_draw(sim, sim->node_count);

    (void)event;
    if (sim->nodes[node].cut_off)
        return;
    sim_note(sim, "node%u is cut off", node);
    sim->nodes[node].cut_off = true;
    sim_at(sim, sim->now_us + sim_draw(sim, 100 * SECOND_US),
           (struct sim_event){.run = rejoin, .node = node});
}

static void plan(struct sim *sim, uint32_t count,
                 void (*run)(struct sim *, const struct sim_event *))
{
    for (uint32_t i = 0; i < count; i++)
        sim_at(sim, sim_draw(sim, sim->faults.until_us), (struct sim_event){.run = run});
}

/* Swarm: each seed has its own subset of faults and rates. */
static void choose_faults(struct sim *sim)
{
    struct sim_faults *faults = &sim->faults;

    faults->until_us = (30 + sim_draw(sim, 150)) * SECOND_US;
    faults->break_pm = sim_chance(sim, 500) ? (uint32_t)sim_draw(sim, 60) : 0;
    faults->late_pm = sim_chance(sim, 500) ? (uint32_t)sim_draw(sim, 300) : 0;
    faults->late_max_us = 1 + sim_draw(sim, 3 * SECOND_US);
    faults->torn_steps = sim_chance(sim, 500);
    faults->cuts = sim_chance(sim, 400) ? (uint32_t)sim_draw(sim, 20) : 0;
    faults->isolations = sim_chance(sim, 300) ? (uint32_t)sim_draw(sim, 4) : 0;
    faults->server_kills = sim_chance(sim, 500) ? (uint32_t)sim_draw(sim, 12) : 0;
    faults->launcher_kills = sim_chance(sim, 500) ? (uint32_t)sim_draw(sim, 12) : 0;
    faults->shim_kills = sim_chance(sim, 400) ? (uint32_t)sim_draw(sim, 5) : 0;
    faults->worker_kills = sim_chance(sim, 600) ? (uint32_t)sim_draw(sim, 6) : 0;
    faults->strangers = sim_chance(sim, 400) ? (uint32_t)sim_draw(sim, 8) : 0;
    faults->hangs = sim_chance(sim, 300) ? (uint32_t)sim_draw(sim, 4) : 0;
    faults->xids = sim_chance(sim, 400) ? (uint32_t)sim_draw(sim, 8) : 0;
    faults->drains = sim_chance(sim, 300) ? (uint32_t)sim_draw(sim, 5) : 0;
    faults->leak_pm = sim_chance(sim, 500) ? (uint32_t)sim_draw(sim, 300) : 0;
    plan(sim, faults->strangers, gpu_hold);
    plan(sim, faults->hangs, gpu_hang);
    plan(sim, faults->xids, gpu_fault);
    plan(sim, faults->drains, gpu_drain);
    plan(sim, faults->cuts, cut);
    plan(sim, faults->isolations, isolate);
    plan(sim, faults->server_kills, kill_server);
    plan(sim, faults->launcher_kills, kill_node);
    plan(sim, faults->shim_kills, kill_shim);
    plan(sim, faults->worker_kills, kill_worker);
}

static void choose_jobs(struct sim *sim)
{
    sim->client_count = 1 + (uint32_t)sim_draw(sim, SWARM_JOBS_MAX);
    for (uint32_t i = 0; i < sim->client_count; i++) {
        struct sim_client *client = &sim->clients[i];

        *client = (struct sim_client){
            .nodes = 1 + (uint32_t)sim_draw(sim, sim->node_count),
            .nproc = 1 + (uint32_t)sim_draw(sim, sim->slots),
            .joins = sim_chance(sim, 700),
            .fails = sim_chance(sim, 100),
            .steps = 1 + (uint32_t)sim_draw(sim, 30),
            .max_restarts = (uint32_t)sim_draw(sim, 12),
            .submit_at_us = sim_draw(sim, sim->faults.until_us),
            .cancel_at_us = UINT64_MAX,
        };
        if (sim_chance(sim, 150))
            client->cancel_at_us = client->submit_at_us + sim_draw(sim, 60 * SECOND_US);
        (void)snprintf(client->request_id, sizeof client->request_id, "%016llx%016llx",
                       (unsigned long long)sim->seed, (unsigned long long)i);
        client_start(sim, i);
    }
}

static void *zeroed(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);

    if (memory == NULL)
        abort();
    return memory;
}

void sim_begin(struct sim *sim, uint64_t seed, const struct sim_size *size)
{
    memset(sim, 0, sizeof *sim);
    sim->size = *size;
    sim->nodes = zeroed(size->nodes, sizeof *sim->nodes);
    sim->told = zeroed(size->nodes, sizeof *sim->told);
    sim->rows = zeroed(size->jobs, sizeof *sim->rows);
    sim->clients = zeroed(size->jobs, sizeof *sim->clients);
    sim->conns = zeroed(size->conns, sizeof *sim->conns);
    sim->generations = zeroed(size->generations, sizeof *sim->generations);
    sim->seed = seed;
    sim->random = seed * 0x9e3779b97f4a7c15u + 1;
    sim->hash = 0xcbf29ce484222325u;
    sim->now_us = 5 * SECOND_US; /* the machine was up before */
    sim->pid_next = 100;
    sim->conn_count = 1; /* 0 is none */
}

void sim_init(struct sim *sim, uint64_t seed)
{
    static const struct sim_size size = {.nodes = SWARM_NODES_MAX,
                                         .jobs = SWARM_JOBS_MAX,
                                         .conns = 4096,
                                         .generations = 512,
                                         .check_interval = 1,
                                         .core_check_interval = 1,
                                         .cleanup_us = 220 * SECOND_US,
                                         .lease_us = LEASE_DEFAULT_US,
                                         .spinning = 20000};

    sim_begin(sim, seed, &size);
    sim->node_count = 2 + (uint32_t)sim_draw(sim, SWARM_NODES_MAX - 1);
    sim->slots = 1 + (uint32_t)sim_draw(sim, SIM_WORKERS_MAX);
    choose_faults(sim);
    server_start(sim);
    for (uint32_t i = 0; i < sim->node_count; i++) {
        if (sim_chance(sim, 600))
            sim->nodes[i].gpu_count = sim_chance(sim, 800) ? sim->slots : 1;
        node_start(sim, i);
    }
    choose_jobs(sim);
}

void sim_free(struct sim *sim)
{
    net_free(sim);
    free(sim->heap);
    free(sim->server.memory);
    free(sim->nodes);
    free(sim->told);
    free(sim->rows);
    free(sim->clients);
    free(sim->conns);
    free(sim->generations);
}
