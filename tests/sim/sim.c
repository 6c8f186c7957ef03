#include "tests/sim/sim.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/oracle.h"

/* splitmix64, Steele et al. 2014 */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t sim_draw(struct sim *sim, uint64_t below)
{
    const uint64_t z = mix(sim->random += 0x9e3779b97f4a7c15u);

    if (sim->is_even && below < UINT64_MAX) /* what is drawn from all numbers must differ */
        return below / 2;
    return below == 0 ? 0 : z % below;
}

bool sim_chance(struct sim *sim, uint32_t per_mille)
{
    return sim_draw(sim, 1000) < per_mille;
}

void sim_note(struct sim *sim, const char *format, ...)
{
    char *line = sim->trace[sim->trace_count++ % SIM_TRACE_LINES];
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

void sim_fail(struct sim *sim, const char *rule, const char *format, ...)
{
    va_list args;

    if (sim->failed)
        return;
    sim->failed = true;
    (void)snprintf(sim->rule, sizeof sim->rule, "%s", rule);
    va_start(args, format);
    (void)vsnprintf(sim->why, sizeof sim->why, format, args);
    va_end(args);
    sim_note(sim, "FAILED: %s: %s", sim->rule, sim->why);
}

/* -- clocks ------------------------------------------------------------------------------------ */

static uint64_t clock_of(const struct sim_clock *clock, uint64_t true_us)
{
    int64_t drift_us = (int64_t)true_us / 1000 * clock->drift_ppm / 1000;

    return clock->offset_us + (uint64_t)((int64_t)true_us + drift_us);
}

uint64_t sim_clock_us(const struct sim *sim, const struct sim_clock *clock)
{
    return clock_of(clock, sim->now_us);
}

uint64_t sim_clock_at(const struct sim *sim, const struct sim_clock *clock, uint64_t local_us)
{
    const uint64_t here_us = sim_clock_us(sim, clock);
    uint64_t at_us;

    if (local_us <= here_us)
        return sim->now_us + 1;
    at_us = sim->now_us + (local_us - here_us) / 1000 * 1000 / (1000 + 1);
    while (clock_of(clock, at_us) < local_us)
        at_us += (local_us - clock_of(clock, at_us)) / 2 + 1;
    return at_us;
}

/* -- the queue: a binary heap, by time, then by insertion --------------------------------------- */

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

/* Until when the party that handles an event is stopped; 0: it runs. */
static uint64_t stopped_until_us(const struct sim *sim, const struct sim_event *event)
{
    const struct sim_node *node = &sim->nodes[event->node];
    uint64_t own_us = 0;

    if (event->party == PARTY_NONE)
        return 0;
    if (event->party == PARTY_SERVER)
        return sim->server.paused_until_us;
    if (event->party == PARTY_NODE)
        own_us = node->paused_until_us;
    else if (event->party == PARTY_SHIM)
        own_us = node->shims[event->shim].paused_until_us;
    return own_us > node->frozen_until_us ? own_us : node->frozen_until_us;
}

/* -- the run ------------------------------------------------------------------------------------ */

bool sim_all_ended(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->client_count; i++)
        for (uint32_t k = 0; k < client_job_count(&sim->clients[i]); k++) {
            const struct sim_row *row = disk_row(sim, sim->clients[i].job_id + k);

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
        sim_fail(sim, "spinning", "%u events within a second: some timer spins",
                 sim->size.spinning);
}

static void step(struct sim *sim)
{
    struct sim_event event = sim->heap[0];
    uint64_t stopped_us;

    sim->heap[0] = sim->heap[--sim->heap_count];
    sift_down(sim);
    sim->now_us = event.at_us;
    sim->event_total++;
    check_spinning(sim);
    stopped_us = stopped_until_us(sim, &event);
    if (stopped_us > sim->now_us)
        sim_at(sim, stopped_us, event);
    else
        event.run(sim, &event);
}

#define STEP_MOST_US 850000u /* sim_worker.c */
#define STILL_MOST_US                                                                              \
    (900 * SECOND_US) /* a folder may be staged, and slots are drained for 420 s */

/* How long the jobs of a client may take that fail each time, one after the other: each run with its end, and the back-off
 * that doubles (docs/architecture.md). */
static uint64_t failing_us(const struct sim_client *client)
{
    uint64_t us = 0, delay_us = 0;

    for (uint32_t i = 0; client->fails && i <= client->max_restarts; i++) {
        us += delay_us + client->steps * STEP_MOST_US + client->grace_us + 10 * SECOND_US;
        delay_us = delay_us == 0 ? SECOND_US : 2 * delay_us;
        delay_us = delay_us > 60 * SECOND_US ? 60 * SECOND_US : delay_us;
    }
    return us * client_job_count(client);
}

/* Each job ends, and meanwhile some job goes on. */
static void check_bound(struct sim *sim)
{
    const uint64_t last_us = sim->faults.until_us;
    uint64_t bound_us = sim->size.bound_us;

    for (uint32_t i = 0; i < sim->client_count; i++)
        bound_us += failing_us(&sim->clients[i]);
    if (sim->now_us > last_us + bound_us) {
        oracle_note_waiting(sim);
        sim_fail(sim, "bounded-time", "not every job has ended %llu s after the last fault",
                 (unsigned long long)(bound_us / SECOND_US));
    } else if (sim->now_us > (sim->moved_us > last_us ? sim->moved_us : last_us) + STILL_MOST_US) {
        oracle_note_waiting(sim);
        sim_fail(sim, "bounded-time", "no job has gone on for %llu s, and not every one has ended",
                 (unsigned long long)(STILL_MOST_US / SECOND_US));
    }
}

void sim_run(struct sim *sim)
{
    uint64_t end_us = UINT64_MAX;

    asks_start(sim);
    while (sim->heap_count > 0 && !sim->failed && !sim->is_void && sim->now_us <= end_us) {
        step(sim);
        if (sim->now_us < sim->check_at_us || sim->failed || sim->is_void)
            continue;
        sim->check_at_us = sim->now_us + sim->size.check_interval_us;
        oracle_check(sim);
        if (end_us == UINT64_MAX && sim->now_us > sim->faults.until_us && !sim_all_ended(sim))
            check_bound(sim);
        else if (end_us == UINT64_MAX && sim->now_us > sim->faults.until_us)
            end_us = (sim->now_us > sim->faults.until_us + 250 * SECOND_US
                          ? sim->now_us
                          : sim->faults.until_us + 250 * SECOND_US) +
                     sim->size.cleanup_us;
    }
    if (!sim->failed && !sim->is_void)
        oracle_check_end(sim);
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
    sim->disk.written = zeroed(size->jobs, sizeof *sim->disk.written);
    sim->disk.synced = zeroed(size->jobs, sizeof *sim->disk.synced);
    sim->disk.unsynced = zeroed(size->jobs, sizeof *sim->disk.unsynced);
    sim->disk.holds = zeroed(size->nodes, sizeof *sim->disk.holds);
    sim->disk.synced_holds = zeroed(size->nodes, sizeof *sim->disk.synced_holds);
    sim->clients = zeroed(size->jobs, sizeof *sim->clients);
    sim->conns = zeroed(size->conns, sizeof *sim->conns);
    sim->oracle = oracle_new(size);
    sim->lease_us = LEASE_DEFAULT_US;
    sim->seed = seed;
    /* Without mix, the sequence of each seed would be that of the one before, without its first number. */
    sim->random = mix(seed + 1);
    sim->hash = 0xcbf29ce484222325u;
    sim->now_us = 5 * SECOND_US; /* the machines booted before the run */
    sim->pid_next = 100;
    sim->conn_count = 1; /* 0 stands for no connection */
    store_begin_run(sim);
}

void sim_free(struct sim *sim)
{
    store_end_run();
    net_free(sim);
    history_free(sim);
    oracle_free(sim->oracle);
    free(sim->heap);
    free(sim->server.memory);
    free(sim->nodes);
    free(sim->disk.written);
    free(sim->disk.synced);
    free(sim->disk.unsynced);
    free(sim->disk.holds);
    free(sim->disk.synced_holds);
    free(sim->clients);
    free(sim->conns);
}
