/* Gradients of shortcuts that are not stored: the data gradient after the norm adds the output's gradient under its
 * mask, where that was measured to be faster. Over the stand-in, beside the CPU backend. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/net_pair.h"
#include "tests/lib/test.h"
#include "tests/standin/cuda/standin.h"
#include "worker/backend/cuda/exec/backend.h"
#include "worker/backend/cuda/exec/internal.h"
#include "worker/net/internal.h"

/* As --tune measured them: both steps that may be apart, as one, and as one under a mask. The stand-in's addition takes
 * 1 us, so a value more is stored in a third of one. */
static void set_times(float apart, float one, float masked)
{
    CHECK_EQ(setenv("DDP_CUDA_SHORTCUTS", "auto", 0), 0);
    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
    standin_plan_times_us[PLAN_CONV_DGRAD] = apart;
    standin_plan_times_us[PLAN_CONV_DGRAD_ADD] = one;
    standin_plan_times_us[PLAN_CONV_DGRAD_MASKED] = masked;
    memset(standin_plan_runs, 0, sizeof standin_plan_runs);
}

static void end(void)
{
    CHECK_EQ(unsetenv("DDP_CUDA_SHORTCUTS"), 0);
    memset(standin_plan_times_us, 0, sizeof standin_plan_times_us);
    memset(&standin_faults, 0, sizeof standin_faults);
}

/* Runs of the plan in two steps of a graph with one such shortcut. */
static uint32_t masked_runs(const char *level, bool bf16)
{
    struct pair pair = pair_new_residual(level, bf16, NULL);

    pair_train(&pair, 2);
    pair_free(&pair);
    return standin_plan_runs[PLAN_CONV_DGRAD_MASKED];
}

TEST(the_faster_way_is_taken)
{
    static const struct {
        float apart, one, masked;
        bool no_plans, is_used;
    } cases[] = {
        {10, 10.5F, 10, false, true},     /* as fast, and a value less is stored */
        {10, 10.5F, 10.7F, false, true},  /* slower by less than that */
        {10, 10.5F, 10.9F, false, false}, /* ... by more */
        {10, 12, 11.2F, false, true},     /* the addition apart takes 11 */
        {10, 12, 11.4F, false, false},    /* and 11.33 with the value */
        {10, 10.5F, 10, true, false},     /* no engine */
        {10, 10.5F, 0, false, false},     /* not timed */
        {0, 10.5F, 10, false, false},     /* nothing to compare it with */
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        set_times(cases[i].apart, cases[i].one, cases[i].masked);
        standin_faults.no_masked_plans = cases[i].no_plans;
        if (masked_runs("O2", false) != (cases[i].is_used ? 2 : 0))
            FAIL("case %zu: %u runs", i, standin_plan_runs[PLAN_CONV_DGRAD_MASKED]);
    }
    end();
}

TEST(in_every_type_of_16_bits)
{
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};

    for (int bf16 = 0; bf16 < 2; bf16++)
        for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
            set_times(10, 10.5F, 10);
            CHECK_EQ(masked_runs(levels[l], bf16 != 0), l == 0 ? 0 : 2);
        }
    end();
}

/* DDP_CUDA_SHORTCUTS: never if it is not set, in any case with 1. */
TEST(the_environment_decides)
{
    for (int always = 0; always < 2; always++) {
        CHECK_EQ(setenv("DDP_CUDA_SHORTCUTS", always ? "1" : "", 1), 0);
        set_times(10, 10.5F, always ? 100 : 1);
        CHECK_EQ(masked_runs("O2", false), always ? 2 : 0);
        set_times(0, 0, 0);
        CHECK_EQ(masked_runs("O2", true), always ? 2 : 0);
    }
    end();
}

/* A plan of a norm stores the gradient in any case. */
TEST(norms_by_plans_store_it)
{
    set_times(10, 10.5F, 10);
    CHECK_EQ(setenv("DDP_CUDA_NORMS", "plans", 1), 0);
    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
    CHECK_EQ(masked_runs("O2", false), 0);
    CHECK_EQ(unsetenv("DDP_CUDA_NORMS"), 0);
    end();
}

/* A batch size may have no such plan, as where its plans were never timed: there it is stored, in the same net. */
TEST(a_smaller_batch_stores_it)
{
    struct pair pair;

    set_times(10, 10.5F, 10);
    pair = pair_new_residual("O2", false, NULL);
    pair_train(&pair, 1);
    CHECK_EQ(standin_plan_runs[PLAN_CONV_DGRAD_MASKED], 1);
    standin_faults.no_masked_plans = true;
    pair_step(&pair, 3, false);
    standin_faults.no_masked_plans = false;
    CHECK_EQ(standin_plan_runs[PLAN_CONV_DGRAD_MASKED], 1);
    pair_step(&pair, 4, true);
    pair_step(&pair, 4, true);
    CHECK(standin_plan_runs[PLAN_CONV_DGRAD_MASKED] > 1);
    pair_free(&pair);
    end();
}

TEST(deterministic_nets_do_not_ask_for_it)
{
    struct graph *graph = pair_residual_graph();
    struct pair pair;

    set_times(10, 10.5F, 10);
    pair = pair_new(&(struct pair_options){.arch = "residual",
                                           .level = "O2",
                                           .graph = graph,
                                           .shape = {3, 8, 8, 10},
                                           .deterministic = true});
    pair_train(&pair, 2);
    CHECK_EQ(standin_plan_runs[PLAN_CONV_DGRAD_MASKED], 0);
    pair_free(&pair);
    graph_free(&graph);
    end();
}

/* Of ResNet-50: 12 of 16 shortcuts; the other 4 are convolutions. */
TEST(twelve_of_a_resnet50)
{
    const struct model_shape shape = {3, 32, 32, 10};
    const struct amp_request request = {.level = "O2", .half_type = "fp16", .loss_scale = "128.0"};
    struct amp amp;
    const struct net_options options = {.batch_max = 1,
                                        .amp = &amp,
                                        .tune_us = NET_TUNE_ALL,
                                        .tunes_cold = true,
                                        .backend = &backend_cuda};
    struct graph *graph = NULL;
    struct net *net = NULL;
    uint32_t found = 0;

    set_times(10, 10.5F, 10);
    CHECK_EQ(amp_resolve(&amp, &request, NULL), STATUS_OK);
    CHECK_EQ(model_build(&graph, "resnet50", &shape, NULL), STATUS_OK);
    CHECK_EQ(net_new(&net, graph, &options, NULL), STATUS_OK);
    for (uint32_t i = 0; i < net->graph->layer_count; i++)
        found += ((const struct cuda *)net->state)->layers[i].masks_for != NULL;
    CHECK_EQ(found, 12);
    net_free(&net);
    graph_free(&graph);
    end();
}

TEST_MAIN
