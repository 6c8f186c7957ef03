/* DDP_CUDA_STATS on stand-ins: batch norms whose statistics come out of the convolution before, in
 * both forms, beside the CPU; and what happens where a plan is missing. The net is
 * pair_residual_graph: seven pairs of a convolution and a batch norm behind the first, of which two
 * have no ReLU, and of which the three inside blocks can be made on the way into the next
 * convolution. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/net_pair.h"
#include "tests/standin/cuda/standin.h"
#include "tests/lib/test.h"
#include "worker/backend/cuda/exec/backend.h"
#include "worker/net/state.h"

enum { PAIRS = 7, CUT = 5, INSIDE = 3 }; /* pairs; with a ReLU; that can be made on the way */

static void use_standin(const char *stats)
{
    CHECK_EQ(setenv("DDP_CUDA_STATS", stats, 1), 0);
    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
    memset(standin_plan_runs, 0, sizeof standin_plan_runs);
}

static void check_runs(uint32_t steps, uint32_t pairs, uint32_t applied, uint32_t inside)
{
    CHECK_EQ(standin_plan_runs[PLAN_CONV_STATS] + standin_plan_runs[PLAN_CONV_STATS_PROLOGUE],
             steps * pairs);
    CHECK_EQ(standin_plan_runs[PLAN_STATS_FINALIZE], steps * pairs);
    CHECK_EQ(standin_plan_runs[PLAN_NORM_APPLY], steps * applied);
    CHECK_EQ(standin_plan_runs[PLAN_CONV_STATS_PROLOGUE], steps * inside);
    CHECK_EQ(standin_plan_runs[PLAN_CONV_WGRAD_PROLOGUE], steps * inside);
    CHECK_EQ(standin_plan_runs[PLAN_CONV_DGRAD_NORM], steps * inside);
    CHECK_EQ(standin_plan_runs[PLAN_NORM_DX], steps * inside);
    CHECK_EQ(standin_plan_runs[PLAN_NORM_FORWARD], steps * (PAIRS + 1 - pairs));
    CHECK_EQ(standin_plan_runs[PLAN_NORM_BACKWARD], steps * (PAIRS + 1 - inside));
}

TEST(statistics_beside_the_cpu)
{
    static const char *const levels[] = {"O1", "O2", "O3"};

    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++)
        for (int stats = 1; stats <= 2; stats++) {
            const uint32_t inside = stats == 2 ? INSIDE : 0;
            struct pair pair;

            use_standin(stats == 2 ? "2" : "1");
            pair = pair_new_residual(levels[l], false, NULL);
            pair_train(&pair, 3);
            check_runs(3, PAIRS, CUT - inside, inside);
            pair_free(&pair);
        }
}

/* Only fp16 has the plans; and without the variable the feature is off. */
TEST(other_types_run_as_without)
{
    static const struct {
        const char *stats, *level;
        bool bf16, by_plans; /* all norms; without times our own kernels do them */
    } cases[] = {{"2", "O0", false, true},
                 {"2", "O2", true, true},
                 {"0", "O2", false, false},
                 {"", "O2", false, false}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pair pair;

        use_standin(cases[i].stats);
        pair = pair_new_residual(cases[i].level, cases[i].bf16, NULL);
        pair_train(&pair, 1);
        CHECK_EQ(standin_plan_runs[PLAN_CONV_STATS], 0);
        CHECK_EQ(standin_plan_runs[PLAN_NORM_FORWARD], cases[i].by_plans ? PAIRS + 1 : 0);
        CHECK_EQ(standin_plan_runs[PLAN_NORM_BACKWARD], cases[i].by_plans ? PAIRS + 1 : 0);
        pair_free(&pair);
    }
}

/* Without NORM_APPLY the norms with a ReLU run as they did; those without one need it not. */
TEST(a_pair_without_its_plans_runs_as_without)
{
    struct pair pair;

    standin_faults.no_apply_plans = true;
    use_standin("2");
    pair = pair_new_residual("O2", false, NULL);
    pair_train(&pair, 2);
    check_runs(2, PAIRS - CUT, 0, 0);
    pair_free(&pair);
    standin_faults.no_apply_plans = false;

    standin_faults.no_prologue_plans = true;
    use_standin("2");
    pair = pair_new_residual("O2", false, NULL);
    pair_train(&pair, 2);
    check_runs(2, PAIRS, CUT, 0);
    pair_free(&pair);
    standin_faults.no_prologue_plans = false;

    standin_faults.no_norm_plans = true; /* our own kernels */
    use_standin("2");
    pair = pair_new_residual("O2", false, NULL);
    pair_train(&pair, 1);
    CHECK_EQ(standin_plan_runs[PLAN_CONV_STATS], 0);
    pair_free(&pair);
    standin_faults.no_norm_plans = false;
}

/* Steps of one net with DDP_CUDA_STATS=auto, norms by plans, and these times. */
static void check_choice(uint32_t pairs, uint32_t applied, uint32_t inside)
{
    struct pair pair;

    CHECK_EQ(setenv("DDP_CUDA_NORMS", "plans", 1), 0);
    use_standin("auto");
    pair = pair_new_residual("O2", false, NULL);
    pair_train(&pair, 1);
    check_runs(1, pairs, applied, inside);
    pair_free(&pair);
    CHECK_EQ(unsetenv("DDP_CUDA_NORMS"), 0);
}

/* Without: 30 + 20 forward, then 32 + 30 + 30 + 20 in the next convolution and the norm's backward.
 * Applied: 32 + 2 + 10, then the same. On the way into the next: 32 + 2, then 36 + 33 + 42.5 + 10.
 */
TEST(the_fastest_is_taken)
{
    static const float times[PLAN_KINDS] = {
        [PLAN_CONV_FORWARD] = 30,       [PLAN_CONV_DGRAD] = 30,          [PLAN_CONV_WGRAD] = 30,
        [PLAN_NORM_FORWARD] = 20,       [PLAN_NORM_EVALUATE] = 10,       [PLAN_NORM_BACKWARD] = 20,
        [PLAN_CONV_STATS] = 32,         [PLAN_CONV_STATS_PROLOGUE] = 36, [PLAN_STATS_FINALIZE] = 2,
        [PLAN_NORM_APPLY] = 10,         [PLAN_CONV_WGRAD_PROLOGUE] = 33, [PLAN_NORM_DX] = 10,
        [PLAN_CONV_DGRAD_NORM] = 42.5F,
    };

    memcpy(standin_plan_times_us, times, sizeof times);
    check_choice(PAIRS, CUT - INSIDE, INSIDE); /* 155.5 instead of 156 */
    standin_plan_times_us[PLAN_CONV_DGRAD_NORM] = 43.5F;
    check_choice(PAIRS, CUT, 0);
    standin_plan_times_us[PLAN_NORM_APPLY] = 17; /* 51 instead of 50 with a ReLU; two are made on
                                                    the way: behind them is one that is applied */
    check_choice(PAIRS - CUT + 2, 0, 2);
    standin_plan_times_us[PLAN_CONV_STATS] = 39;
    check_choice(0, 0, 0);
    memcpy(standin_plan_times_us, times, sizeof times);
    standin_plan_times_us[PLAN_CONV_WGRAD] = 0; /* not known */
    check_choice(PAIRS, CUT, 0);
    memset(standin_plan_times_us, 0, sizeof times);
    check_choice(0, 0, 0);
}

/* Our own kernels take 4 us, so a pair takes 34; with statistics and a pass 32 + 0.5 + 0.5 + 0.5. Those that are faster
 * so have them; the others, as the first norm, run by our own kernels. */
TEST(forms_are_compared_with_our_own_kernels_too)
{
    struct pair pair;

    for (int is_slow = 0; is_slow < 2; is_slow++) {
        for (int kind = 0; kind < PLAN_KINDS; kind++)
            standin_plan_times_us[kind] = 0.5F;
        standin_plan_times_us[PLAN_CONV_FORWARD] = 30;
        standin_plan_times_us[PLAN_CONV_STATS] = is_slow ? 33 : 32;
        standin_plan_times_us[PLAN_CONV_STATS_PROLOGUE] = 60;
        standin_plan_times_us[PLAN_NORM_FORWARD] = standin_plan_times_us[PLAN_NORM_EVALUATE] = 50;
        use_standin("auto");
        pair = pair_new_residual("O2", false, NULL);
        pair_train(&pair, 1);
        CHECK_EQ(standin_plan_runs[PLAN_CONV_STATS], is_slow ? 0 : CUT);
        CHECK_EQ(standin_plan_runs[PLAN_NORM_APPLY], is_slow ? 0 : CUT);
        CHECK_EQ(standin_plan_runs[PLAN_NORM_BACKWARD], is_slow ? 0 : CUT);
        CHECK_EQ(standin_plan_runs[PLAN_NORM_FORWARD], 0);
        pair_free(&pair);
    }
    memset(standin_plan_times_us, 0, sizeof standin_plan_times_us);
}

/* A smaller last batch has plans of its own: also fewer kinds of them than the whole one. */
TEST(a_later_set_may_lack_plans)
{
    struct pair pair;

    use_standin("2");
    pair = pair_new_residual("O2", false, NULL);
    for (uint32_t i = 0; i < 6; i++) {
        memset(standin_plan_runs, 0, sizeof standin_plan_runs);
        standin_faults.no_prologue_plans = i == 1;
        standin_faults.no_apply_plans = i == 3;
        pair_step(&pair, i == 1 || i == 4 ? 3 : i == 3 ? 2 : 4, false);
        pair_check(&pair);
        if (i == 1 || i == 4)
            check_runs(1, PAIRS, CUT, 0);
        else if (i == 3)
            check_runs(1, PAIRS - CUT, 0, 0);
        else
            check_runs(1, PAIRS, CUT - INSIDE, INSIDE);
    }
    standin_faults.no_prologue_plans = standin_faults.no_apply_plans = false;
    pair_free(&pair);
}

/* Captured steps are bit-identical: the capture has the same pointers. */
TEST(captured_steps_are_the_same_steps)
{
    static const uint32_t sizes[] = {4, 4, 4, 3, 3, 3, 4};
    struct pair pair;
    struct standin_counts before;

    use_standin("2");
    pair = pair_new_residual("O2", false, &backend_cuda);
    pair.tolerance = 0;
    before = standin_counts();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        pair_step(&pair, sizes[i], true);
        pair_check(&pair);
    }
    CHECK_EQ(standin_counts().replayed - before.replayed, 5 + 6); /* steps, and ends of steps */
    pair_evaluate(&pair, 2);
    pair_free(&pair);
}

TEST(clipping_and_accumulation)
{
    struct graph *graph = pair_residual_graph();
    struct pair pair;

    use_standin("2");
    pair = pair_new(&(struct pair_options){.arch = "residual",
                                           .level = "O2",
                                           .graph = graph,
                                           .shape = {3, 8, 8, 10},
                                           .accumulate = true,
                                           .clips = true});
    pair_train(&pair, 2);
    pair_free(&pair);
    graph_free(&graph);
}

TEST(resnet18)
{
    for (int stats = 1; stats <= 2; stats++) {
        struct pair pair;

        use_standin(stats == 2 ? "2" : "1");
        pair = pair_new(&(struct pair_options){
            .arch = "resnet18", .level = "O2", .shape = {3, 32, 32, 10}, .batch = 2});
        pair_step(&pair, 2, false);
        CHECK_EQ(standin_plan_runs[PLAN_STATS_FINALIZE], 19);
        CHECK_EQ(standin_plan_runs[PLAN_NORM_DX], stats == 2 ? 8 : 0);
        pair_free(&pair);
    }
}

/* A value that is never written must not be reported as infinite. */
TEST(the_first_infinity_is_found)
{
    static float images[4 * 3 * 8 * 8];
    const int64_t labels[] = {1, 2, 3, 4};
    struct err err = {.text = ""};
    uint32_t index = 0;
    struct pair pair;
    char where[160];
    float *values;

    use_standin("2");
    pair = pair_new_residual("O2", false, NULL);
    pair_step(&pair, 4, false);
    while (strcmp(net_tensor(pair.other, index)->name, "l.weight") != 0)
        index++;
    values = calloc(net_tensor(pair.other, index)->count, sizeof *values);
    CHECK(values != NULL);
    values[0] = 1e30F; /* infinite in fp16 */
    CHECK_EQ(net_tensor_write(pair.other, index, values, NULL), STATUS_OK);
    free(values);
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++)
        images[i] = (float)(i % 7);
    CHECK_EQ(net_forward(pair.other, images, labels, 4, true, NULL, &err), STATUS_OK);
    CHECK_EQ(net_backward(pair.other, 1.0F, &err), STATUS_OK);
    net_describe_nonfinite(pair.other, where, sizeof where);
    CHECK_STR(where, "the output of layer l");
    pair_free(&pair);
}

TEST_MAIN
