/* How much of the all-reduce hides behind backward: a synthetic backward of B buckets on N
 * processes over loopback.
 *
 * Prints one JSON line with medians over the steps: step (overlapped), delayed (reduce after
 * backward), compute (no reduce), comm (the same buckets, no compute), exposed = what a step waits
 * after backward, and the bus bandwidth of comm (2 (N-1)/N bytes moved per byte reduced, as
 * nccl-tests counts it).
 *
 *     overlap [--world N] [--buckets B] [--bucket-kib K] [--work-us U] [--steps S] */
#include <getopt.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/bench/overlap/ranks.h"
#include "tests/unit/worker/comm/fake_net.h"
#include "worker/comm/ddp.h"
#include "worker/net/state.h"

#define STEPS_MAX 1000

struct bench {
    uint32_t world, buckets, bucket_kib, work_us, steps;
};

/* Median time of net_backward_reduce; the median of its exposed part in `exposed_us`. */
static uint64_t measure_ddp(const struct bench *bench, struct comm *comm, struct net *net,
                            uint32_t rank, bool delayed, uint64_t *exposed_us)
{
    static uint64_t steps_us[STEPS_MAX], waits_us[STEPS_MAX];
    struct ddp_options options = {.delay_allreduce = delayed};
    struct reducer reducer;
    struct ddp *ddp = NULL;
    struct err err;

    ranks_must(ddp_new(&ddp, comm, net, rank, bench->world, &options, &err), &err);
    ranks_must(ddp_reducer(ddp, &reducer, &err), &err);
    net_set_reducer(net, &reducer);
    for (uint32_t i = 0; i < bench->steps; i++) {
        uint64_t begin_us;

        ranks_must(comm_barrier(comm, &err), &err);
        begin_us = ranks_now_us();
        ranks_must(net_backward_reduce(net, 1.0F, &err), &err);
        steps_us[i] = ranks_now_us() - begin_us;
        waits_us[i] = ddp_times(ddp).exposed_us;
    }
    net_set_reducer(net, NULL);
    ddp_free(&ddp);
    *exposed_us = ranks_median(waits_us, bench->steps);
    return ranks_median(steps_us, bench->steps);
}

static void compute(const struct bench *bench, struct comm *comm, struct net *net)
{
    struct err err;

    (void)bench;
    (void)comm;
    ranks_must(net_backward(net, 1.0F, &err), &err);
}

static void reduce(const struct bench *bench, struct comm *comm, struct net *net)
{
    struct err err;

    for (uint32_t i = 0; i < bench->buckets; i++) {
        const struct net_view bucket = fake_bucket(net, i);

        ranks_must(comm_all_reduce_sum(comm, bucket.values, bucket.count, &err), &err);
    }
}

/* The median time of one half of a step alone: compute() or reduce(). */
static uint64_t measure_half(const struct bench *bench, struct comm *comm, struct net *net,
                             void (*half)(const struct bench *, struct comm *, struct net *))
{
    static uint64_t steps_us[STEPS_MAX];
    struct err err;

    for (uint32_t i = 0; i < bench->steps; i++) {
        uint64_t begin_us;

        ranks_must(comm_barrier(comm, &err), &err);
        begin_us = ranks_now_us();
        half(bench, comm, net);
        steps_us[i] = ranks_now_us() - begin_us;
    }
    return ranks_median(steps_us, bench->steps);
}

static void report(const struct bench *bench, struct comm *comm, struct net *net, uint32_t rank)
{
    uint64_t bytes = (uint64_t)bench->buckets * bench->bucket_kib * 1024;
    uint64_t ignored_us, exposed_us;
    uint64_t compute_us = measure_half(bench, comm, net, compute);
    uint64_t comm_us = measure_half(bench, comm, net, reduce);
    uint64_t delayed_us = measure_ddp(bench, comm, net, rank, true, &ignored_us);
    uint64_t step_us = measure_ddp(bench, comm, net, rank, false, &exposed_us);
    double bus_bytes = (double)bytes * 2.0 * (bench->world - 1) / bench->world;

    if (rank != 0)
        return;
    (void)printf("{\"bench\":\"overlap\",\"world\":%u,\"buckets\":%u,\"bucket_kib\":%u,"
                 "\"steps\":%u,\"cores\":%ld,\"compute_us\":%llu,\"comm_us\":%llu,"
                 "\"delayed_us\":%llu,\"step_us\":%llu,\"exposed_us\":%llu,\"bus_mb_s\":%.0f}\n",
                 bench->world, bench->buckets, bench->bucket_kib, bench->steps,
                 sysconf(_SC_NPROCESSORS_ONLN), (unsigned long long)compute_us,
                 (unsigned long long)comm_us, (unsigned long long)delayed_us,
                 (unsigned long long)step_us, (unsigned long long)exposed_us,
                 comm_us == 0 ? 0.0 : bus_bytes / (double)comm_us);
}

static void run_rank(void *user, struct comm *comm, uint32_t rank)
{
    const struct bench *bench = user;
    struct fake_plan plan = fake_plan_of(rank);
    struct net *net;

    plan.bucket_count = bench->buckets;
    plan.work_us = bench->work_us;
    for (uint32_t i = 0; i < bench->buckets; i++)
        plan.bucket_counts[i] = (size_t)bench->bucket_kib * 256;
    net = fake_net_new(&plan);
    report(bench, comm, net, rank);
    fake_net_free(&net);
}

static bool parse_options(int argc, char **argv, struct bench *bench)
{
    static const struct option options[] = {
        {"world", required_argument, NULL, 'w'},      {"buckets", required_argument, NULL, 'b'},
        {"bucket-kib", required_argument, NULL, 'k'}, {"work-us", required_argument, NULL, 'u'},
        {"steps", required_argument, NULL, 's'},      {NULL, 0, NULL, 0}};
    bool is_fine = true;
    int option;

    while (is_fine && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'w')
            is_fine = ranks_parse(optarg, 16, &bench->world);
        else if (option == 'b')
            is_fine = ranks_parse(optarg, FAKE_BUCKETS_MAX, &bench->buckets);
        else if (option == 'k')
            is_fine = ranks_parse(optarg, 65536, &bench->bucket_kib);
        else if (option == 'u')
            is_fine = ranks_parse(optarg, 1000000, &bench->work_us);
        else
            is_fine = option == 's' && ranks_parse(optarg, STEPS_MAX, &bench->steps);
    }
    return is_fine && optind == argc;
}

int main(int argc, char **argv)
{
    struct bench bench = {
        .world = 2, .buckets = 8, .bucket_kib = 1024, .work_us = 2000, .steps = 50};

    if (!parse_options(argc, argv, &bench)) {
        (void)fprintf(stderr, "usage: overlap [--world N] [--buckets B] [--bucket-kib K] "
                              "[--work-us U] [--steps S]\n");
        return 2;
    }
    return ranks_run(bench.world, run_rank, &bench) ? 0 : 1;
}
