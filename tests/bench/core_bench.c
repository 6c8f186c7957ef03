/* How long one step of the server's core takes: a beat, and a submit into a full queue. By hand:
 * bench_core [NODES JOBS]. All slots of all nodes are taken by running jobs; the queue behind them is
 * full. Prints one line of JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "tests/bench/core_drive.h"

#define SLOTS 8u

static struct core_drive drive;

static void finish(void)
{
    while (drive.actions.timer_at_us <= drive.now_us)
        (void)core_drive_step(&drive, (struct rdzv_event){.type = RDZV_EVENT_TICK});
}

static double beat(uint32_t node)
{
    struct part_beat_shim shim = {.job_id = node + 1,
                                  .generation = 1,
                                  .phase = SHIM_RUNNING,
                                  .slot_mask = (1ull << SLOTS) - 1};
    struct msg msg = {.type = MSG_TYPE_BEAT};

    msg.beat.sent_us = drive.now_us;
    msg.beat.shims.items = &shim;
    msg.beat.shims.count = 1;
    return core_drive_step(
        &drive, (struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = node + 1, .msg = &msg});
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
    static double samples[JOBS_ACTIVE_MAX];
    struct rusage usage;
    uint32_t count = 0;

    if (nodes >= jobs || !core_drive_init(&drive, nodes, jobs))
        return 1;
    for (uint32_t i = 0; i < nodes; i++)
        (void)core_drive_hello(&drive, i, SLOTS);
    for (uint32_t i = 0; i < nodes; i++)
        (void)core_drive_submit(&drive, 1, SLOTS);
    finish();
    for (uint32_t i = nodes; i < jobs; i++)
        samples[count++] = core_drive_submit(&drive, i == nodes ? 2 : 1, SLOTS);
    finish();
    (void)printf("{\"nodes\": %u, \"jobs\": %u", nodes, rdzv_job_count(drive.core));
    print("submit", samples, count);
    for (uint32_t round = 0; round < 4; round++) {
        drive.now_us += 1000000;
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
