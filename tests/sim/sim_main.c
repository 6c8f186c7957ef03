/* sim [--seed N] [--seeds COUNT] [--from N] [--verbose]: runs seeds, prints what failed. Each 50th
 * runs twice: the same trace, or something depends on more than the seed.
 * sim --limits: one run with as many nodes and jobs as there may be. */
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct sim *running;

static char running_seed[48];

static void print(const char *text)
{
    (void)!write(STDOUT_FILENO, text, strlen(text));
}

/* An assertion of a core has failed: print the trace and the seed. */
static void on_abort(int signal)
{
    (void)signal;
    for (uint32_t i = running->trace_count > 40 ? running->trace_count - 40 : 0;
         i < running->trace_count; i++) {
        print(running->trace[i % 256]);
        print("\n");
    }
    print(running_seed);
}

struct totals {
    uint64_t events, simulated_us;
    uint32_t failed;
};

/* Seed 0: the limits. */
static uint64_t run_seed(struct sim *sim, uint64_t seed, bool verbose, struct totals *totals)
{
    uint64_t hash;

    (void)snprintf(running_seed, sizeof running_seed, "seed %" PRIu64 ": aborted\n", seed);
    if (seed == 0)
        sim_init_limits(sim);
    else
        sim_init(sim, seed);
    sim->verbose = verbose;
    sim_run(sim);
    totals->events += sim->event_total;
    totals->simulated_us += sim->now_us;
    totals->failed += sim->failed;
    hash = sim->hash;
    sim_free(sim);
    return hash;
}

static uint64_t number(const char *text)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);

    if (*text == '\0' || *end != '\0') {
        (void)fprintf(stderr, "sim: %s is not a number\n", text);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    struct totals totals = {0};
    uint64_t first = 1, count = 300;
    bool verbose = false;
    struct sim *sim = malloc(sizeof *sim);

    if (sim == NULL)
        abort();
    running = sim;
    (void)signal(SIGABRT, on_abort);
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;

        if (strcmp(argv[i], "--verbose") == 0)
            verbose = true;
        else if (strcmp(argv[i], "--limits") == 0)
            first = 0, count = 1;
        else if (strcmp(argv[i], "--seed") == 0 && has_value)
            first = number(argv[++i]), count = 1;
        else if (strcmp(argv[i], "--from") == 0 && has_value)
            first = number(argv[++i]);
        else if (strcmp(argv[i], "--seeds") == 0 && has_value)
            count = number(argv[++i]);
        else
            return fprintf(stderr, "sim: what is %s?\n", argv[i]), 2;
    }
    for (uint64_t seed = first; seed < first + count; seed++) {
        uint64_t hash = run_seed(sim, seed, verbose, &totals);

        if (seed != 0 && seed % 50 == 0 && run_seed(sim, seed, false, &totals) != hash) {
            printf("seed %" PRIu64 ": two runs differ\n", seed);
            totals.failed++;
        }
    }
    printf("%" PRIu64 " seeds, %u failed; %" PRIu64 " events, %.1f simulated hours\n", count,
           totals.failed, totals.events, (double)totals.simulated_us / 3.6e9);
    free(sim);
    return totals.failed == 0 ? 0 : 1;
}
