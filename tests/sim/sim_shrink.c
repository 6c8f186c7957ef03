/* Finds the smallest run of a seed that still fails in the same way: it leaves out whole kinds of
 * faults, then single faults, then jobs. Every attempt is a process of its own, since a core may
 * abort. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sim/sim.h"

const char *fault_text(enum sim_fault kind)
{
    static const char *const texts[] = {
#define TEXT(name, chance, most, text) [FAULT_##name] = text,
        SIM_PLANNED_TABLE(TEXT) SIM_RATE_TABLE(TEXT)
#undef TEXT
    };

    return texts[kind];
}

#define ATTEMPTS_MAX 600u
#define TRACE_LINES_SHOWN 150u

struct attempt {
    uint64_t seed;
    bool is_large;
    struct sim_mask mask;
    char rule[32]; /* empty: a core aborts */
    uint32_t left;
};

static struct sim *new_sim(const struct attempt *attempt)
{
    struct sim *sim = malloc(sizeof *sim);

    if (sim == NULL)
        abort();
    sim_init(sim, attempt->seed, &attempt->mask, attempt->is_large);
    return sim;
}

/* Runs in a child; its output is discarded. */
static void run(const struct attempt *attempt, int out)
{
    struct sim *sim;

    if (freopen("/dev/null", "w", stderr) == NULL)
        _exit(0);
    sim = new_sim(attempt);
    sim_run(sim);
    if (sim->failed && write(out, sim->rule, sizeof sim->rule) < 0)
        _exit(2);
    _exit(0);
}

/* Writes the rule that fails, "" if a core aborts. False: the run does not fail. */
static bool try(struct attempt *attempt, char rule[32])
{
    int fds[2], status = 0;
    ssize_t length;
    pid_t pid;

    if (attempt->left == 0)
        return false;
    attempt->left--;
    (void)fflush(NULL);
    if (pipe(fds) < 0 || (pid = fork()) < 0)
        return false;
    if (pid == 0)
        run(attempt, fds[1]);
    (void)close(fds[1]);
    length = read(fds[0], rule, 32);
    (void)close(fds[0]);
    (void)waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        rule[0] = '\0';
    return length > 0 || WIFSIGNALED(status);
}

static bool still_fails(struct attempt *attempt)
{
    char rule[32];

    return try(attempt, rule) && strcmp(rule, attempt->rule) == 0;
}

static void leave_out(struct attempt *attempt, bool *what)
{
    if (*what)
        return;
    *what = true;
    if (!still_fails(attempt))
        *what = false;
}

static void print(const struct attempt *attempt, const struct sim *sim)
{
    const uint32_t shown =
        sim->trace_count < TRACE_LINES_SHOWN ? sim->trace_count : TRACE_LINES_SHOWN;

    printf("seed %" PRIu64 ", made smaller: %u nodes, %u slots, %u jobs, lease %llu s, and\n",
           attempt->seed, sim->node_count, sim->slots, sim->client_count,
           (unsigned long long)(sim->lease_us / SECOND_US));
    for (uint32_t i = 0; i < sim->faults.planned_count; i++)
        if (!attempt->mask.planned[i] && !attempt->mask.kinds[sim->faults.planned[i].kind])
            printf("  at %.6f s: %s\n", (double)sim->faults.planned[i].at_us / 1e6,
                   fault_text(sim->faults.planned[i].kind));
    for (uint32_t kind = FAULT_RATES; kind < FAULT_COUNT; kind++)
        if (sim->faults.amount[kind] > 0)
            printf("  %u of 1000 %s\n", sim->faults.amount[kind], fault_text((enum sim_fault)kind));
    for (uint32_t i = sim->trace_count - shown; i < sim->trace_count; i++)
        puts(sim->trace[i % SIM_TRACE_LINES]);
}

/* Prints the smallest run, with its trace. */
static void show(const struct attempt *attempt)
{
    pid_t pid;
    struct sim *sim;

    (void)fflush(NULL);
    pid = fork();
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    if (pid != 0)
        return;
    sim = new_sim(attempt);
    if (attempt->rule[0] == '\0') {
        (void)setvbuf(stdout, NULL, _IOLBF, 0); /* the run may abort, so write each line at once */
        sim->verbose = true;
    }
    sim_run(sim);
    print(attempt, sim);
    (void)fflush(NULL);
    _exit(0);
}

void sim_shrink(uint64_t seed, bool is_large, bool is_starts)
{
    struct attempt *attempt = calloc(1, sizeof *attempt);

    if (attempt == NULL)
        abort();
    attempt->seed = seed;
    attempt->is_large = is_large;
    attempt->mask.is_starts = is_starts;
    attempt->left = is_large ? 40 : ATTEMPTS_MAX;
    if (try(attempt, attempt->rule)) {
        for (uint32_t kind = 0; kind < FAULT_COUNT; kind++)
            leave_out(attempt, &attempt->mask.kinds[kind]);
        for (uint32_t i = SIM_PLANNED_MAX; i-- > 0 && attempt->left > 50;)
            leave_out(attempt, &attempt->mask.planned[i]);
        for (uint32_t i = SIM_CLIENTS_MASKED_MAX; i-- > 0;)
            leave_out(attempt, &attempt->mask.clients[i]);
        show(attempt);
    }
    free(attempt);
}
