/* The server's core without its edges, for benchmarks: events go in, and the time of each step comes out. */
#ifndef TESTS_BENCH_CORE_DRIVE_H
#define TESTS_BENCH_CORE_DRIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/core/rdzv.h"

struct core_drive {
    struct rdzv *core;
    uint64_t now_us;
    struct rdzv_actions actions; /* of the last step */
};

/* False: no memory. The core is empty, and has been restored. */
bool core_drive_init(struct core_drive *drive, uint32_t nodes_max, uint32_t jobs_max);
/* Seconds; time is set. */
double core_drive_step(struct core_drive *drive, struct rdzv_event event);
/* The node's hello on the connection node + 1. */
double core_drive_hello(struct core_drive *drive, uint32_t node, uint32_t slots);
double core_drive_submit(struct core_drive *drive, uint32_t nodes, uint32_t nproc);

#endif
