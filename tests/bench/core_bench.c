/* How long one step of the server's core takes: a beat, and a submit into a full queue. By hand:
 * bench_core [NODES JOBS]. All slots of all nodes are taken by running jobs; the queue behind them is
 * full. Prints one line of JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "rendezvous/core/rdzv.h"

#define SLOTS 8u

static struct rdzv *core;
static struct rdzv_actions actions;
static uint64_t now_us = 1000000000;

static double seconds(void)
{
    struct timespec at;

    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static double step(struct rdzv_event event)
{
    double begin = seconds();

    event.now_us = now_us;
    event.wall_ms = (int64_t)(now_us / 1000);
    rdzv_step(core, &event, &actions);
    return seconds() - begin;
}

static void finish(void)
{
    while (actions.timer_at_us <= now_us)
        (void)step((struct rdzv_event){.type = RDZV_EVENT_TICK});
}

static double hello(uint32_t node)
{
    char name[16];
    struct msg msg = {.type = MSG_TYPE_NODE_HELLO};

    (void)snprintf(name, sizeof name, "node%u", node);
    msg.node_hello = (struct msg_node_hello){.version = "1",
                                             .name = name,
                                             .boot_id = "b",
                                             .instance = node + 1,
                                             .address = "10.0.0.1",
                                             .slots = SLOTS};
    return step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = node + 1, .msg = &msg});
}

static double beat(uint32_t node)
{
    struct part_beat_shim shim = {.job_id = node + 1,
                                  .generation = 1,
                                  .phase = SHIM_RUNNING,
                                  .slot_mask = (1ull << SLOTS) - 1};
    struct msg msg = {.type = MSG_TYPE_BEAT};

    msg.beat.sent_us = now_us;
    msg.beat.shims.items = &shim;
    msg.beat.shims.count = 1;
    return step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = node + 1, .msg = &msg});
}

static double submit(uint32_t nodes)
{
    static const char *const argv[] = {"x"};
    static uint32_t serial;
    char request_id[REQUEST_ID_CHARS + 1];
    struct msg msg = {.type = MSG_TYPE_SUBMIT};

    (void)snprintf(request_id, sizeof request_id, "%032u", ++serial);
    msg.submit = (struct msg_submit){.request_id = request_id,
                                     .name = "job",
                                     .nodes = nodes,
                                     .nproc_per_node = SLOTS,
                                     .cwd = "/",
                                     .argv = {argv, 1}};
    return step(
        (struct rdzv_event){.type = RDZV_EVENT_SUBMIT, .client = 1, .msg = &msg, .user = "ann"});
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void print(const char *what, double *samples, uint32_t count)
{
    double sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += samples[i];
    qsort(samples, count, sizeof *samples, compare);
    (void)printf(", \"%s_mean_us\": %.2f, \"%s_p99_us\": %.2f, \"%s_max_us\": %.2f", what,
                 sum / count * 1e6, what, samples[count * 99 / 100] * 1e6, what,
                 samples[count - 1] * 1e6);
}

int main(int argc, char **argv)
{
    uint32_t nodes = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 4096;
    uint32_t jobs = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : JOBS_ACTIVE_MAX;
    struct rdzv_options options = {.jobs_max = jobs,
                                   .nodes_max = nodes,
                                   .lease_us = 60000000,
                                   .beat_interval_us = 1000000,
                                   .suspect_us = 5000000,
                                   .lost_us = 15000000,
                                   .seed = 1,
                                   .cluster = "bench"};
    static double samples[JOBS_ACTIVE_MAX];
    struct rusage usage;
    uint32_t count = 0;
    void *memory = mmap(NULL, rdzv_bytes(&options), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED || nodes >= jobs)
        return 1;
    core = rdzv_init(memory, &options);
    (void)step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < nodes; i++)
        (void)hello(i);
    for (uint32_t i = 0; i < nodes; i++)
        (void)submit(1);
    finish();
    for (uint32_t i = nodes; i < jobs; i++)
        samples[count++] = submit(i == nodes ? 2 : 1);
    finish();
    (void)printf("{\"nodes\": %u, \"jobs\": %u", nodes, rdzv_job_count(core));
    print("submit", samples, count);
    for (uint32_t round = 0; round < 4; round++) {
        now_us += 1000000;
        for (uint32_t i = 0; i < nodes; i++)
            if (round < 3)
                (void)beat(i);
            else
                samples[i] = beat(i);
    }
    print("beat", samples, nodes);
    (void)getrusage(RUSAGE_SELF, &usage);
    (void)printf(", \"memory_mib\": %ld}\n", usage.ru_maxrss / 1024);
    return 0;
}
