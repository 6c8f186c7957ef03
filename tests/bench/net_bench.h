/* What the speed benchmarks of single nets differ in; net_bench.c is the program. */
#ifndef TESTS_BENCH_NET_BENCH_H
#define TESTS_BENCH_NET_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/init.h"

struct bench_case {
    const char *name, *arch;
    uint32_t channels, size, classes; /* images are size x size */
    uint32_t batch, rounds, steps;    /* unless the command line says otherwise */
    uint32_t warm_up_steps;           /* not timed */
    bool has_variants;                /* --arch and --size are understood */
    enum status (*init)(struct net *net, const struct graph *graph, struct rng *rng,
                        struct err *err);
};

extern const struct bench_case bench_case;

#endif
