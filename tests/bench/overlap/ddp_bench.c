/* How much of a real step's all-reduce is not hidden: a model trained by N processes, one thread
 * each.
 *
 * Blocks of steps of four kinds take turns: with overlapped reduction, with the reduction after
 * backward, with none, and the reduction alone. A block is timed from a barrier to a barrier, so it
 * has all ranks' work in it however many cores there are. Prints one JSON line of medians, in
 * microseconds a step; exposed = overlapped - none (spec, "measuring overlap").
 *
 *     ddp_bench [--arch NAME] [--world N] [--batch N] [--size PIXELS] [--rounds R] [--steps S] */
#include <assert.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/overlap/ranks.h"
#include "worker/comm/ddp.h"
#include "worker/model/init.h"
#include "worker/model/model.h"
#include "worker/net/net.h"
#include "worker/net/state.h"

#define ROUNDS_MAX 1000

enum kind { OVERLAPPED, DELAYED, NONE, ALONE, KINDS };

struct bench {
    const char *arch;
    uint32_t world, batch, size, rounds, steps;
};

struct rank {
    const struct bench *bench;
    struct comm *comm;
    struct net *net;
    struct ddp *ddps[KINDS]; /* NULL for the kinds without one */
    struct reducer reducers[KINDS];
    float *images;
    int64_t *labels;
};

static uint32_t channels_of(const struct bench *bench)
{
    return model_is_resnet(bench->arch) ? 3 : 1;
}

static uint32_t classes_of(const struct bench *bench)
{
    return model_is_resnet(bench->arch) ? 1000 : 10;
}

static void make_images(struct rank *rank, uint32_t index)
{
    const struct bench *bench = rank->bench;
    const size_t count = (size_t)bench->batch * channels_of(bench) * bench->size * bench->size;
    struct rng rng;

    rng_seed(&rng, index);
    rank->images = malloc(count * sizeof *rank->images);
    rank->labels = malloc(bench->batch * sizeof *rank->labels);
    if (rank->images == NULL || rank->labels == NULL)
        exit(1);
    rng_uniform_f32(&rng, 0.0F, 1.0F, rank->images, count);
    for (uint32_t i = 0; i < bench->batch; i++)
        rank->labels[i] = (int64_t)(rng_u32(&rng) % classes_of(bench));
}

static void make_net(struct rank *rank, uint32_t index)
{
    const struct bench *bench = rank->bench;
    const struct net_options options = {.batch_max = bench->batch};
    const struct model_shape shape = {channels_of(bench), bench->size, bench->size,
                                      classes_of(bench)};
    struct graph *graph = NULL;
    struct rng rng;
    struct err err;

    rng_seed(&rng, 0);
    ranks_must(model_build(&graph, bench->arch, &shape, &err), &err);
    ranks_must(net_new(&rank->net, graph, &options, &err), &err);
    ranks_must(init_torchvision_resnet(rank->net, graph, &rng, &err), &err);
    graph_free(&graph);
    for (enum kind kind = OVERLAPPED; kind <= DELAYED; kind++) {
        const struct ddp_options ddp = {.delay_allreduce = kind == DELAYED};

        ranks_must(
            ddp_new(&rank->ddps[kind], rank->comm, rank->net, index, bench->world, &ddp, &err),
            &err);
        ranks_must(ddp_reducer(rank->ddps[kind], &rank->reducers[kind], &err), &err);
    }
}

static void reduce_alone(struct rank *rank)
{
    struct err err;

    for (uint32_t i = 0; i < net_bucket_count(rank->net); i++) {
        struct net_view view;

        ranks_must(net_bucket_open(rank->net, i, &view, &err), &err);
        ranks_must(comm_all_reduce_sum(rank->comm, view.values, view.count, &err), &err);
        ranks_must(net_bucket_close(rank->net, i, &view, &err), &err);
    }
}

static void step(struct rank *rank, enum kind kind)
{
    const struct optim sgd = {.lr = 0.0F}; /* gradients of `ALONE` are no gradients */
    struct net_result result;
    struct err err;

    if (kind == ALONE) {
        reduce_alone(rank);
        return;
    }
    ranks_must(
        net_forward(rank->net, rank->images, rank->labels, rank->bench->batch, true, &result, &err),
        &err);
    net_set_reducer(rank->net, kind == NONE ? NULL : &rank->reducers[kind]);
    ranks_must(net_backward_reduce(rank->net, 1.0F, &err), &err);
    net_update(rank->net, &sgd);
}

/* Microseconds a step. */
static uint64_t time_block(struct rank *rank, enum kind kind)
{
    uint64_t begin_us;
    struct err err;

    assert(rank->bench->steps > 0);
    ranks_must(comm_barrier(rank->comm, &err), &err);
    begin_us = ranks_now_us();
    for (uint32_t i = 0; i < rank->bench->steps; i++)
        step(rank, kind);
    ranks_must(comm_barrier(rank->comm, &err), &err);
    return (ranks_now_us() - begin_us) / rank->bench->steps;
}

static void report(const struct rank *rank, const uint64_t medians[KINDS])
{
    const struct bench *bench = rank->bench;
    const double exposed = (double)medians[OVERLAPPED] - (double)medians[NONE];

    (void)printf("{\"bench\":\"ddp\",\"arch\":\"%s\",\"world\":%u,\"batch\":%u,\"size\":%u,"
                 "\"cores\":%ld,\"buckets\":%u,\"step_us\":%llu,\"delayed_us\":%llu,"
                 "\"compute_us\":%llu,\"comm_us\":%llu,\"exposed_percent\":%.1f}\n",
                 bench->arch, bench->world, bench->batch, bench->size,
                 sysconf(_SC_NPROCESSORS_ONLN), net_bucket_count(rank->net),
                 (unsigned long long)medians[OVERLAPPED], (unsigned long long)medians[DELAYED],
                 (unsigned long long)medians[NONE], (unsigned long long)medians[ALONE],
                 100.0 * exposed / (double)medians[OVERLAPPED]);
}

static void run_rank(void *user, struct comm *comm, uint32_t index)
{
    static uint64_t times[KINDS][ROUNDS_MAX];
    struct rank rank = {.bench = user, .comm = comm};
    uint64_t medians[KINDS];

    make_net(&rank, index);
    make_images(&rank, index);
    for (enum kind kind = OVERLAPPED; kind < KINDS; kind++)
        step(&rank, kind); /* pages, primitives, sockets */
    for (uint32_t round = 0; round < rank.bench->rounds; round++)
        for (enum kind kind = OVERLAPPED; kind < KINDS; kind++)
            times[kind][round] = time_block(&rank, kind);
    for (enum kind kind = OVERLAPPED; kind < KINDS; kind++)
        medians[kind] = ranks_median(times[kind], rank.bench->rounds);
    if (index == 0)
        report(&rank, medians);
    ddp_free(&rank.ddps[OVERLAPPED]);
    ddp_free(&rank.ddps[DELAYED]);
    net_free(&rank.net);
    free(rank.images);
    free(rank.labels);
}

static bool parse_options(int argc, char **argv, struct bench *bench)
{
    static const struct option options[] = {{"arch", required_argument, NULL, 'a'},
                                            {"world", required_argument, NULL, 'w'},
                                            {"batch", required_argument, NULL, 'b'},
                                            {"size", required_argument, NULL, 'x'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {"steps", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    bool is_fine = true;
    int option;

    while (is_fine && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'a')
            bench->arch = optarg;
        else if (option == 'w')
            is_fine = ranks_parse(optarg, 16, &bench->world);
        else if (option == 'b')
            is_fine = ranks_parse(optarg, 4096, &bench->batch);
        else if (option == 'x')
            is_fine = ranks_parse(optarg, 1024, &bench->size);
        else if (option == 'r')
            is_fine = ranks_parse(optarg, ROUNDS_MAX, &bench->rounds);
        else
            is_fine = option == 's' && ranks_parse(optarg, 10000, &bench->steps);
    }
    return is_fine && optind == argc;
}

/* OpenMP has read its environment by now: begin again. */
static void one_thread(char **argv)
{
    const char *threads = getenv("OMP_NUM_THREADS");

    if (threads != NULL && strcmp(threads, "1") == 0)
        return;
    if (setenv("OMP_NUM_THREADS", "1", 1) == 0)
        (void)execv("/proc/self/exe", argv);
    exit(1);
}

int main(int argc, char **argv)
{
    struct bench bench = {
        .arch = "resnet50", .world = 4, .batch = 16, .size = 224, .rounds = 3, .steps = 1};

    if (!parse_options(argc, argv, &bench)) {
        (void)fprintf(stderr, "usage: ddp_bench [--arch NAME] [--world N] [--batch N] "
                              "[--size PIXELS] [--rounds R] [--steps S]\n");
        return 2;
    }
    one_thread(argv);
    return ranks_run(bench.world, run_rank, &bench) ? 0 : 1;
}
