/* What plans say of their cache and of the device is in the log, once. */
#include <string.h>

#include "common/log.h"
#include "tests/lib/net_pair.h"
#include "tests/lib/test.h"
#include "tests/standin/cuda/standin.h"
#include "worker/backend/cuda/exec/backend.h"

static char logged[2048];

static void take_line(const char *bytes, size_t byte_count)
{
    const size_t at = strlen(logged);

    CHECK(at + byte_count < sizeof logged);
    memcpy(logged + at, bytes, byte_count);
    logged[at + byte_count] = '\0';
}

static uint32_t count(const char *words)
{
    uint32_t found = 0;

    for (const char *at = strstr(logged, words); at != NULL; at = strstr(at + 1, words))
        found++;
    return found;
}

TEST(notes_of_plans_are_logged_once)
{
    const struct model_shape shape = {1, 28, 28, 10};
    const struct net_options options = {.batch_max = 2, .backend = &backend_cuda};
    struct graph *graph = NULL;
    struct net *net = NULL;

    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
    CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
    CHECK_EQ(net_new(&net, graph, &options, NULL), STATUS_OK);
    CHECK(standin_plan_options.note != NULL);
    log_use(take_line);
    standin_plan_options.note(standin_plan_options.note_user, "no memory to time plans with");
    standin_plan_options.note(standin_plan_options.note_user, "no memory to time plans with");
    standin_plan_options.note(standin_plan_options.note_user, "3 plans are damaged");
    log_use(NULL);
    CHECK_EQ(count("no memory to time plans with"), 1);
    CHECK_EQ(count("3 plans are damaged"), 1);
    net_free(&net);
    graph_free(&graph);
}

/* What the log says while a ConvNet with its two batch norms is made; tune_us: of net_options. */
static void log_of_net(uint64_t tune_us, bool deterministic)
{
    const struct model_shape shape = {1, 28, 28, 10};
    const struct amp_request request = {.level = "O2"};
    struct graph *graph = NULL;
    struct net *net = NULL;
    struct amp amp;
    const struct net_options options = {.batch_max = 2,
                                        .tune_us = tune_us,
                                        .tunes_cold = true,
                                        .deterministic = deterministic,
                                        .amp = &amp,
                                        .backend = &backend_cuda};

    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
    CHECK_EQ(amp_resolve(&amp, &request, NULL), STATUS_OK);
    CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
    logged[0] = '\0';
    log_use(take_line);
    CHECK_EQ(net_new(&net, graph, &options, NULL), STATUS_OK);
    log_use(NULL);
    net_free(&net);
    graph_free(&graph);
}

/* Our own kernels take 4 launches of 1 us, the pool after a norm's plans takes 2. */
TEST(norms_by_plans_and_by_own_kernels_are_compared)
{
    standin_plan_times_us[PLAN_NORM_FORWARD] = 0.5F;
    standin_plan_times_us[PLAN_NORM_BACKWARD] = 1;
    log_of_net(NET_TUNE_ALL, false);
    CHECK_EQ(count("2 of 2 batch norms by plans, 0 by own kernels; a step's norms take 0.0"), 1);
    CHECK_EQ(count(" ms by own kernels ("), 1);
    CHECK_EQ(count("not timed yet"), 0);
    memset(standin_plan_times_us, 0, sizeof standin_plan_times_us);
}

/* A first start has no times, and there was no time for our own kernels in the second one. With
 * --deterministic there will be none. */
TEST(norms_that_are_not_timed_yet_are_counted)
{
    log_of_net(0, false);
    CHECK_EQ(count("0 of 2 batch norms by plans, 2 by own kernels; plans of 2 are not timed yet "
                   "(--tune)\n"),
             1);
    standin_plan_times_us[PLAN_NORM_FORWARD] = standin_plan_times_us[PLAN_NORM_BACKWARD] = 1;
    log_of_net(0, false);
    CHECK_EQ(count("0 of 2 batch norms by plans, 2 by own kernels; plans of 2 are not timed yet "
                   "(--tune)\n"),
             1);
    memset(standin_plan_times_us, 0, sizeof standin_plan_times_us);
    log_of_net(0, true);
    CHECK_EQ(count("0 of 2 batch norms by plans, 2 by own kernels\n"), 1);
}

/* As cuDNN has none for a norm with an addition and no ReLU in fp16: nothing failed. */
TEST(a_norm_without_a_plan_is_named)
{
    standin_faults.no_norm_plans = true;
    log_of_net(NET_TUNE_ALL, false);
    CHECK_EQ(count("0 of 2 batch norms by plans, 2 by own kernels: layer layer1.1: no plan for its "
                   "batch norm forward: "),
             1);
    CHECK_EQ(count("; our own kernels take over (fp16, with ReLU)"), 1);
    standin_faults.no_norm_plans = false;
}

TEST_MAIN
