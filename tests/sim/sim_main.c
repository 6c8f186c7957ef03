/* sim [--seeds COUNT] [--from N] [--seed N]... [--list FILE] [--jobs N] [--first] [--no-shrink]
 *     [--verbose] [--large] [--limits] [--history] [--restarts] [--starts]
 *
 * Runs seeds, in N processes, and prints each failure: made smaller, with its trace. Every 50th seed runs
 * twice: a different trace shows that something depends on more than the seed. --list: the seeds of a file,
 * one on each line, "large", "restarts" or "starts" before one of these runs, "#" begins a comment. --first: stop at the
 * first that fails. --large: 64 nodes with 8 slots each, and 1,000 jobs. --limits: one run with the
 * largest allowed number of nodes and jobs. --history: the server's store is put back to an earlier commit.
 * --restarts: each seed with and without restarts of the server, whose jobs must end alike, and get the same orders. --starts: faults strike while
 * jobs start (sim_starts.c). */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sim/sim.h"

#define JOBS_MAX 64u
#define SEEDS_MAX 65536u
#define SHRUNK_MAX 3u
#define TWICE_EVERY 50u

struct seed {
    uint64_t number;
    bool is_large, is_limits, is_history, is_restarts, is_starts;
};

struct options {
    uint64_t from, count;
    uint32_t listed;
    struct seed list[SEEDS_MAX];
    uint32_t jobs;
    bool first, shrinks, verbose, is_large, is_limits, is_history, is_restarts, is_starts;
};

/* The progress of one process, in memory shared with its parent. */
struct progress {
    uint64_t next;   /* index of the current seed */
    bool is_running; /* the process has not ended */
    uint64_t events, simulated_us, seeds;
    uint32_t failed, voids;
    uint64_t failures[16]; /* indices of the seeds that failed */
};

static struct seed seed_at(const struct options *options, uint64_t index)
{
    if (options->listed > 0)
        return options->list[index];
    return (struct seed){options->from + index, options->is_large,    options->is_limits,
                         options->is_history,   options->is_restarts, options->is_starts};
}

static void init(struct sim *sim, struct seed seed, const struct sim_mask *mask)
{
    if (seed.is_limits)
        sim_init_limits(sim);
    else if (seed.is_history)
        sim_init_history(sim, seed.number);
    else if (seed.is_restarts)
        sim_init_restarts(sim, seed.number, RESTARTS_ANY, false);
    else
        sim_init(sim, seed.number, mask, seed.is_large);
}

/* The same jobs, and a server that goes on. */
static void run_calm(struct sim *sim, struct seed seed, struct sim_ends *ends)
{
    sim_init_restarts(sim, seed.number, RESTARTS_NEVER, false);
    sim_run(sim);
    if (sim->failed)
        printf("seed %" PRIu64 ", without restarts: %s: %s\n", seed.number, sim->rule, sim->why);
    sim_note_ends(sim, ends);
    sim_free(sim);
}

/* The same jobs without chance, once with and once without restarts of the server at quiet points. True: both agree. */
static bool run_quiet(struct sim *sim, struct seed seed, bool verbose)
{
    static struct sim_orders orders[2];
    struct sim_ends ends;

    for (uint32_t i = 0; i < 2; i++) {
        sim_init_restarts(sim, seed.number, i == 0 ? RESTARTS_NEVER : RESTARTS_QUIET, true);
        sim->orders = &orders[i];
        orders[i].count = 0;
        sim->verbose = verbose;
        sim_run(sim);
        if (i == 0)
            sim_note_ends(sim, &ends);
        else if (!sim->failed)
            sim_compare_ends(sim, &ends);
        if (i == 1 && !sim->failed)
            restarts_compare_orders(sim, &orders[0]);
        if (sim->failed)
            break;
        if (i == 0)
            sim_free(sim);
    }
    return !sim->failed;
}

static uint64_t run_seed(struct sim *sim, struct seed seed, bool verbose, struct progress *progress)
{
    const struct sim_mask all = {.is_starts = seed.is_starts};
    struct sim_ends ends;
    uint64_t hash;

    if (!seed.is_restarts || run_quiet(sim, seed, verbose)) {
        if (seed.is_restarts) {
            sim_free(sim);
            run_calm(sim, seed, &ends);
        }
        init(sim, seed, &all);
        sim->verbose = verbose;
        sim_run(sim);
        if (seed.is_restarts && !sim->failed)
            sim_compare_ends(sim, &ends);
    }
    progress->events += sim->event_total;
    progress->simulated_us += sim->now_us;
    progress->voids += sim->is_void;
    if (sim->failed) {
        printf("seed %" PRIu64 ": at %.6f s: %s: %s\n", seed.number, (double)sim->now_us / 1e6,
               sim->rule, sim->why);
        (void)fflush(stdout);
    }
    hash = sim->hash;
    return hash;
}

static void note_failure(struct progress *progress, uint64_t index)
{
    if (progress->failed < sizeof progress->failures / sizeof progress->failures[0])
        progress->failures[progress->failed] = index;
    progress->failed++;
}

/* Every jobs-th seed from `progress->next` on. */
static void run_share(const struct options *options, struct progress *progress)
{
    struct sim *sim = malloc(sizeof *sim);

    if (sim == NULL)
        abort();
    for (; progress->next < options->count; progress->next += options->jobs) {
        const struct seed seed = seed_at(options, progress->next);
        uint64_t hash = run_seed(sim, seed, options->verbose, progress);
        bool failed = sim->failed;

        sim_free(sim);
        progress->seeds++;
        if (!failed && !seed.is_limits && seed.number % TWICE_EVERY == 0) {
            failed = run_seed(sim, seed, false, progress) != hash;
            sim_free(sim);
            if (failed)
                printf("seed %" PRIu64 ": two runs differ\n", seed.number);
        }
        if (!failed)
            continue;
        note_failure(progress, progress->next);
        if (options->first)
            break;
    }
    free(sim);
    progress->is_running = false;
}

static pid_t start(const struct options *options, struct progress *progress)
{
    pid_t pid;

    (void)fflush(NULL);
    progress->is_running = true;
    pid = fork();
    if (pid < 0) {
        perror("sim: fork");
        exit(2);
    }
    if (pid == 0) {
        run_share(options, progress);
        (void)fflush(NULL);
        _exit(0);
    }
    return pid;
}

/* A core has failed an assertion: the seed counts as failed, and the other seeds still run. */
static void on_crash(const struct options *options, struct progress *progress)
{
    printf("seed %" PRIu64 ": at 0 s: assertion: the process has aborted\n",
           seed_at(options, progress->next).number);
    note_failure(progress, progress->next);
    progress->seeds++;
    progress->next += options->jobs;
    progress->is_running = false;
}

static void run_all(const struct options *options, struct progress *all)
{
    pid_t pids[JOBS_MAX];
    uint32_t living = options->jobs;

    for (uint32_t i = 0; i < options->jobs; i++) {
        all[i].next = i;
        pids[i] = start(options, &all[i]);
    }
    while (living > 0) {
        int status;
        pid_t pid = wait(&status);

        for (uint32_t i = 0; i < options->jobs; i++) {
            if (pids[i] != pid)
                continue;
            if (all[i].is_running)
                on_crash(options, &all[i]);
            pids[i] = -1;
            living--;
            if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !options->first) {
                pids[i] = start(options, &all[i]);
                living++;
            }
        }
    }
}

static void shrink(const struct options *options, const struct progress *all)
{
    uint32_t shrunk = 0;

    for (uint32_t i = 0; i < options->jobs; i++)
        for (uint32_t k = 0; k < all[i].failed && k < 16 && shrunk < SHRUNK_MAX; k++) {
            const struct seed seed = seed_at(options, all[i].failures[k]);

            if (seed.is_limits || seed.is_history || seed.is_restarts)
                continue;
            sim_shrink(seed.number, seed.is_large, seed.is_starts);
            shrunk++;
        }
}

static uint64_t number(const char *text)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);

    if (*text < '0' || *text > '9' || (*end != '\0' && *end != '\n')) {
        (void)fprintf(stderr, "sim: %s is not a number\n", text);
        exit(2);
    }
    return value;
}

static void add_seed(struct options *options, struct seed seed)
{
    if (options->listed == SEEDS_MAX) {
        (void)fprintf(stderr, "sim: more than %u seeds\n", SEEDS_MAX);
        exit(2);
    }
    seed.is_history = options->is_history;
    options->list[options->listed++] = seed;
}

static void read_list(struct options *options, const char *path)
{
    FILE *file = fopen(path, "r");
    char line[512];

    if (file == NULL) {
        perror(path);
        exit(2);
    }
    while (fgets(line, sizeof line, file) != NULL) {
        static const char *const kinds[] = {"large ", "restarts ", "starts "};
        bool is[3] = {options->is_large, options->is_restarts, options->is_starts};
        char *word = line;

        for (uint32_t i = 0; i < 3; i++)
            if (strncmp(line, kinds[i], strlen(kinds[i])) == 0) {
                is[i] = true;
                word = line + strlen(kinds[i]);
            }
        word[strcspn(word, " #\n")] = '\0';
        if (word[0] != '\0')
            add_seed(options, (struct seed){.number = number(word),
                                            .is_large = is[0],
                                            .is_restarts = is[1],
                                            .is_starts = is[2]});
    }
    (void)fclose(file);
}

static void parse(struct options *options, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const bool has_value = i + 1 < argc;

        if (strcmp(argv[i], "--verbose") == 0)
            options->verbose = true;
        else if (strcmp(argv[i], "--first") == 0)
            options->first = true;
        else if (strcmp(argv[i], "--no-shrink") == 0)
            options->shrinks = false;
        else if (strcmp(argv[i], "--large") == 0)
            options->is_large = true;
        else if (strcmp(argv[i], "--limits") == 0)
            options->is_limits = true, options->count = 1;
        else if (strcmp(argv[i], "--history") == 0)
            options->is_history = true;
        else if (strcmp(argv[i], "--restarts") == 0)
            options->is_restarts = true;
        else if (strcmp(argv[i], "--starts") == 0)
            options->is_starts = true;
        else if (strcmp(argv[i], "--seed") == 0 && has_value)
            add_seed(options, (struct seed){.number = number(argv[++i]),
                                            .is_large = options->is_large,
                                            .is_restarts = options->is_restarts,
                                            .is_starts = options->is_starts});
        else if (strcmp(argv[i], "--list") == 0 && has_value)
            read_list(options, argv[++i]);
        else if (strcmp(argv[i], "--from") == 0 && has_value)
            options->from = number(argv[++i]);
        else if (strcmp(argv[i], "--seeds") == 0 && has_value)
            options->count = number(argv[++i]);
        else if (strcmp(argv[i], "--jobs") == 0 && has_value)
            options->jobs = (uint32_t)number(argv[++i]);
        else {
            (void)fprintf(stderr, "sim: what is %s?\n", argv[i]);
            exit(2);
        }
    }
    if (options->jobs < 1 || options->jobs > JOBS_MAX) {
        (void)fprintf(stderr, "sim: --jobs is 1 to %u\n", JOBS_MAX);
        exit(2);
    }
    if (options->listed > 0)
        options->count = options->listed;
}

int main(int argc, char **argv)
{
    static struct options options = {.from = 1, .count = 300, .jobs = 1, .shrinks = true};
    struct progress total = {0}, *all;

    parse(&options, argc, argv);
    all = mmap(NULL, JOBS_MAX * sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
               0);
    if (all == MAP_FAILED) {
        perror("sim: mmap");
        return 2;
    }
    run_all(&options, all);
    if (options.shrinks)
        shrink(&options, all);
    for (uint32_t i = 0; i < options.jobs; i++) {
        total.seeds += all[i].seeds;
        total.failed += all[i].failed;
        total.voids += all[i].voids;
        total.events += all[i].events;
        total.simulated_us += all[i].simulated_us;
    }
    if (total.voids > 0)
        printf("%u runs were left when the server did what it could not know better\n",
               total.voids);
    printf("%" PRIu64 " seeds, %u failed; %" PRIu64 " events, %.1f simulated hours\n", total.seeds,
           total.failed, total.events, (double)total.simulated_us / 3.6e9);
    return total.failed == 0 ? 0 : 1;
}
