/* What a start costs, in what can be counted without a GPU: engines proposed, made ready and timed before the first
 * step, and what is left for later. Over the stand-in, whose cache is that of the process; tests/unit/worker/backend/
 * cuda/plans/keep_test.c counts in the plans themselves. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/net_pair.h"
#include "tests/lib/test.h"
#include "tests/standin/cuda/standin.h"
#include "worker/backend/cuda/exec/backend.h"
#include "worker/backend/cuda/exec/plan_progress.h"
#include "worker/net/state.h"

enum { BATCH = 4, LAST = 3, SIDE = 28 };

/* Of the ConvNet in fp32: 2 convolutions (3 + 2 plans), 2 batch norms (2 each), 1 linear layer (3);
 * the first convolution has no data gradient. */
#define PLANS 12
#define NORM_PLANS 4 /* of them: made only where the cache has their times, and by --tune */
#define MADE (PLANS - NORM_PLANS)

static void use_standin(void)
{
    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
}

/* A start: a net, and what its plans cost. */
static struct net *start(uint64_t tune_us, bool deterministic)
{
    const struct model_shape shape = {1, SIDE, SIDE, 10};
    const struct net_options options = {.batch_max = BATCH,
                                        .batch_last = LAST,
                                        .tune_us = tune_us,
                                        .tunes_cold = tune_us == NET_TUNE_ALL, /* as --tune */
                                        .deterministic = deterministic,
                                        .backend = &backend_cuda};
    struct graph *graph = NULL;
    struct net *net = NULL;

    memset(&standin_plan_totals, 0, sizeof standin_plan_totals);
    standin_plan_builds = 0;
    CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
    CHECK_EQ(net_new(&net, graph, &options, NULL), STATUS_OK);
    graph_free(&graph);
    return net;
}

static void step(struct net *net, uint32_t n)
{
    static float images[BATCH * SIDE * SIDE];
    const int64_t labels[BATCH] = {1, 2, 3, 4};

    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++)
        images[i] = (float)(i % 7) * 0.1F;
    CHECK_EQ(net_forward(net, images, labels, n, true, NULL, NULL), STATUS_OK);
    CHECK_EQ(net_backward(net, 1.0F, NULL), STATUS_OK);
}

static void begin_cold(void)
{
    use_standin();
    standin_plan_cache = true;
    standin_plan_cache_clear();
    for (int kind = 0; kind < PLAN_KINDS; kind++)
        standin_plan_times_us[kind] = 1;
}

static void end(struct net **net)
{
    net_free(net);
    standin_plan_cache = false;
    memset(standin_plan_times_us, 0, sizeof standin_plan_times_us);
}

TEST(a_cold_start_makes_one_engine_a_plan_and_times_nothing)
{
    struct net *net;

    begin_cold();
    net = start(2000000, false);
    step(net, BATCH);
    CHECK_EQ(standin_plan_builds, 1); /* none for the last batch */
    CHECK_EQ(standin_plan_totals.plans, PLANS);
    CHECK_EQ(standin_plan_totals.queries, MADE);
    CHECK_EQ(standin_plan_totals.finalised, MADE);
    CHECK_EQ(standin_plan_totals.tuned, 0);
    CHECK_EQ(standin_plan_totals.untimed, MADE);
    end(&net);
}

/* Each start times the costliest plan that has no time yet, for as long as it may. */
TEST(later_starts_query_nothing_and_time_a_part)
{
    struct net *net;

    begin_cold();
    net = start(0, false);
    net_free(&net);
    for (uint32_t i = 1; i <= MADE + 1; i++) {
        net = start(2000000, false);
        CHECK_EQ(standin_plan_totals.queries + standin_plan_totals.built, 0);
        CHECK_EQ(standin_plan_totals.from_cache, MADE);
        CHECK_EQ(standin_plan_totals.tuned, i <= MADE ? 1 : 0);
        CHECK_EQ(standin_plan_totals.untimed, i <= MADE ? MADE - i : 0);
        net_free(&net);
    }
    net = start(0, false);
    CHECK_EQ(standin_plan_totals.finalised, MADE);
    CHECK_EQ(standin_plan_totals.tuned + standin_plan_totals.queries, 0);
    end(&net);
}

TEST(tune_all_leaves_nothing_for_any_batch)
{
    struct net *net;

    begin_cold();
    net = start(0, false);
    net_free(&net);
    net = start(NET_TUNE_ALL, false);
    CHECK_EQ(standin_plan_builds, 2);
    net_free(&net);
    net = start(NET_TUNE_ALL, false);
    CHECK_EQ(standin_plan_totals.tuned + standin_plan_totals.untimed, 0);
    CHECK_EQ(standin_plan_totals.queries, 0);
    CHECK_EQ(standin_plan_totals.finalised, 2 * PLANS);
    end(&net);
}

TEST(deterministic_never_times)
{
    struct net *net;

    begin_cold();
    for (int i = 0; i < 3; i++) {
        net = start(i == 0 ? 0 : NET_TUNE_ALL, true);
        CHECK_EQ(standin_plan_totals.tuned + standin_plan_totals.untimed, 0);
        CHECK(standin_plan_options.deterministic);
        net_free(&net);
    }
    net = start(NET_TUNE_ALL, true);
    end(&net);
}

/* A thread builds them after the third step; the step of that size waits for it. */
TEST(plans_of_the_last_batch_are_made_while_steps_run)
{
    struct net *net;

    begin_cold();
    net = start(NET_TUNE_ALL - 1, false);
    for (int i = 0; i < 3; i++)
        step(net, BATCH);
    CHECK_EQ(standin_plan_builds, 1);
    step(net, BATCH);
    step(net, LAST);
    CHECK_EQ(standin_plan_builds, 2);
    CHECK(standin_plan_options.in_background && standin_plan_options.shares != NULL);
    CHECK(standin_plan_options.tune_us == 0 && standin_plan_options.progress == NULL);
    for (int i = 0; i < 5; i++)
        step(net, i % 2 == 0 ? BATCH : LAST);
    CHECK_EQ(standin_plan_builds, 2);
    end(&net);
}

TEST(a_last_batch_that_comes_early_and_other_sizes_are_made_then)
{
    struct net *net;

    begin_cold();
    net = start(0, false);
    step(net, LAST);
    CHECK_EQ(standin_plan_builds, 2);
    CHECK(!standin_plan_options.in_background && standin_plan_options.tune_us == 0);
    for (int i = 0; i < 5; i++)
        step(net, BATCH);
    step(net, 2);
    CHECK_EQ(standin_plan_builds, 3);
    end(&net);
}

TEST(a_net_that_ends_while_the_thread_builds)
{
    struct net *net;

    begin_cold();
    net = start(0, false);
    for (int i = 0; i < 4; i++)
        step(net, BATCH);
    end(&net);
}

/* The loss is the same, whoever built the plans. */
TEST(our_own_kernels_are_timed_once)
{
    uint64_t launches[3];
    struct net *net;

    begin_cold();
    standin_plan_times_us[PLAN_NORM_FORWARD] = standin_plan_times_us[PLAN_NORM_BACKWARD] = 1e6F;
    for (int i = 0; i < 4; i++) {
        const uint64_t before = standin_counts().launches;

        net = start(i == 0 ? 0 : NET_TUNE_ALL, false);
        if (i > 0)
            launches[i - 1] = standin_counts().launches - before;
        if (i < 3)
            net_free(&net);
    }
    CHECK(launches[0] > launches[1] && launches[1] == launches[2]);
    memset(standin_plan_runs, 0, sizeof standin_plan_runs);
    step(net, BATCH);
    CHECK_EQ(standin_plan_runs[PLAN_NORM_BACKWARD], 0); /* they are faster, as the cache knows */
    end(&net);
    begin_cold();
    standin_plan_times_us[PLAN_NORM_FORWARD] = standin_plan_times_us[PLAN_NORM_BACKWARD] = 1e6F;
    net = start(2000000, false); /* no times yet */
    memset(standin_plan_runs, 0, sizeof standin_plan_runs);
    step(net, BATCH);
    CHECK_EQ(standin_plan_runs[PLAN_NORM_BACKWARD], 0);
    end(&net);
}

/* A step of a residual net in fp16 with DDP_CUDA_STATS=auto. Returns how many convolutions made
 * statistics. */
static uint32_t statistics(uint64_t tune_us, bool deterministic)
{
    const struct amp_request half = {.level = "O2", .half_type = "fp16"};
    static float images[BATCH * 3 * 8 * 8];
    const int64_t labels[BATCH] = {1, 2, 3, 4};
    struct graph *graph = pair_residual_graph();
    struct net *net = NULL;
    struct amp amp;
    struct net_options options = {.batch_max = BATCH,
                                  .tune_us = tune_us,
                                  .tunes_cold = tune_us == NET_TUNE_ALL,
                                  .deterministic = deterministic,
                                  .amp = &amp,
                                  .backend = &backend_cuda};

    CHECK_EQ(amp_resolve(&amp, &half, NULL), STATUS_OK);
    memset(standin_plan_runs, 0, sizeof standin_plan_runs);
    CHECK_EQ(net_new(&net, graph, &options, NULL), STATUS_OK);
    graph_free(&graph);
    CHECK_EQ(net_forward(net, images, labels, BATCH, true, NULL, NULL), STATUS_OK);
    CHECK_EQ(net_backward(net, 1.0F, NULL), STATUS_OK);
    net_free(&net);
    return standin_plan_runs[PLAN_CONV_STATS] + standin_plan_runs[PLAN_CONV_STATS_PROLOGUE];
}

/* Without times the default; as soon as they are known what is faster; with --deterministic never. */
TEST(statistics_out_of_convolutions_wait_for_times)
{
    struct net *none = NULL;

    CHECK_EQ(setenv("DDP_CUDA_STATS", "auto", 1), 0);
    begin_cold();
    standin_plan_times_us[PLAN_NORM_FORWARD] = 50;
    CHECK_EQ(statistics(2000000, false), 0);
    CHECK_EQ(statistics(2000000, false), 0); /* one plan has a time now */
    CHECK(statistics(NET_TUNE_ALL, false) > 0);
    CHECK(statistics(0, false) > 0);
    CHECK_EQ(statistics(NET_TUNE_ALL, true), 0);
    CHECK_EQ(unsetenv("DDP_CUDA_STATS"), 0);
    end(&none);
}

/* 59.2 GFLOP at 593 TFLOP/s; three passes over 102.8 MB at 3.0 TB/s. */
TEST(costs_by_hand)
{
    struct plan_request request = {.kind = PLAN_CONV_FORWARD,
                                   .type = GRAPH_F16,
                                   .n = 256,
                                   .c = 64,
                                   .h = 56,
                                   .w = 56,
                                   .k = 64,
                                   .out_h = 56,
                                   .out_w = 56,
                                   .window = {3, 1, 1}};

    CHECK_NEAR(plan_cost_us(&request), 99.8, 0.1);
    request.kind = PLAN_NORM_FORWARD;
    request.out_h = request.out_w = 0;
    CHECK_NEAR(plan_cost_us(&request), 102.3, 0.1);
    request.kind = PLAN_LINEAR_FORWARD;
    request.n = request.h = request.w = 1;
    CHECK(plan_cost_us(&request) < 0.1);
}

TEST(progress_on_a_terminal_and_in_a_log)
{
    struct plan_progress terminal = {0}, log = {0};
    char text[PLAN_PROGRESS_BYTES];

    CHECK(!plan_progress_line(&terminal, PLAN_BUILDING, 0, 187, 1000000, true, text));
    CHECK(!plan_progress_line(&terminal, PLAN_BUILDING, 9, 187, 1400000, true, text));
    CHECK(plan_progress_line(&terminal, PLAN_BUILDING, 61, 187, 1500000, true, text));
    CHECK_STR(text, "plans: 61 of 187");
    CHECK(!plan_progress_line(&terminal, PLAN_BUILDING, 62, 187, 1550000, true, text));
    CHECK(plan_progress_line(&terminal, PLAN_BUILDING, 62, 187, 1600000, true, text));
    CHECK(plan_progress_line(&terminal, PLAN_BUILDING, 187, 187, 1610000, true, text));
    CHECK_STR(text, ""); /* the line is empty again */
    CHECK(plan_progress_line(&terminal, PLAN_TIMING, 3, 70, 1800000, true, text));
    CHECK_STR(text, "plans: 3 of 70 timed");

    CHECK(!plan_progress_line(&log, PLAN_WAITING, 0, 0, 1000000, false, text));
    CHECK(!plan_progress_line(&log, PLAN_WAITING, 2, 0, 3900000, false, text));
    CHECK(plan_progress_line(&log, PLAN_WAITING, 3, 0, 4000000, false, text));
    CHECK_STR(text, "plans: waiting for another process that makes them, 3 s");
    CHECK(!plan_progress_line(&log, PLAN_BUILDING, 5, 9, 6900000, false, text));
    CHECK(plan_progress_line(&log, PLAN_BUILDING, 6, 9, 7000000, false, text));
    CHECK(!plan_progress_line(&log, PLAN_BUILDING, 9, 9, 11000000, false, text));
}

TEST_MAIN
