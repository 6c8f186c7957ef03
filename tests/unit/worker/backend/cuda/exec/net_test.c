/* The CUDA backend end to end on a machine without a GPU, over the stand-in's tables
 * (tests/standin/cuda/standin.h), compared with the CPU backend. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/standin/cuda/standin.h"
#include "tests/lib/test.h"
#include "tests/lib/net_pair.h"
#include "worker/backend/cuda/exec/backend.h"
#include "worker/net/state.h"

static void use_standin(void)
{
    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
}

TEST(convnet_at_every_level)
{
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};

    use_standin();
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        struct pair pair = pair_new(&(struct pair_options){.arch = "convnet", .level = levels[l]});

        pair_train(&pair, 4);
        pair_free(&pair);
    }
}

static void train_odd(const char *level, bool bf16)
{
    struct graph *graph = pair_odd_graph();
    struct err err = {.text = ""};
    struct pair pair;

    if (graph_check(graph, &err) != STATUS_OK)
        FAIL("%s", err.text);
    pair = pair_new(&(struct pair_options){.arch = "odd",
                                           .level = level,
                                           .graph = graph,
                                           .shape = {3, 12, 12, 10},
                                           .bf16 = bf16,
                                           .label_smoothing = 0.1F});
    pair_train(&pair, 3);
    pair_free(&pair);
    graph_free(&graph);
}

TEST(odd_layers_at_every_level)
{
    use_standin();
    train_odd("O0", false);
    train_odd("O1", false);
    train_odd("O2", false);
    train_odd("O3", false);
    train_odd("O2", true);
}

TEST(batch_norm_by_our_own_kernels)
{
    use_standin();
    standin_faults.no_norm_plans = true;
    train_odd("O0", false);
    train_odd("O2", false);
    train_odd("O3", false);
    standin_faults.no_norm_plans = false;
}

/* TF32 and determinism are options of plans: a net passes them on. */
TEST(plans_get_the_net_s_options)
{
    use_standin();
    for (int asked = 0; asked < 4; asked++) {
        const struct model_shape shape = {1, 28, 28, 10};
        const struct net_options options = {.batch_max = 2,
                                            .tf32 = (asked & 1) != 0,
                                            .deterministic = (asked & 2) != 0,
                                            .backend = &backend_cuda};
        struct graph *graph = NULL;
        struct net *net = NULL;

        CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
        CHECK_EQ(net_new(&net, graph, &options, NULL), STATUS_OK);
        CHECK_EQ(standin_plan_options.tf32, options.tf32);
        CHECK_EQ(standin_plan_options.deterministic, options.deterministic);
        net_free(&net);
        graph_free(&graph);
    }
}

/* A batch norm whose input needs no gradient; the CPU has no batch norm of a flattened image. The
 * stand-in aborts if a plan lacks a pointer. */
TEST(batch_norm_of_flattened_images)
{
    struct graph *graph = graph_new();
    uint32_t at = graph_flatten(graph, "flat", graph_input(graph, 3, 5, 5));

    use_standin();
    at = graph_relu(graph, "cut", graph_batch_norm(graph, "norm", at));
    at = graph_linear(graph, "fc", at, 10, true);
    (void)graph_cross_entropy(graph, "loss", at);
    for (int no_plans = 0; no_plans < 2; no_plans++) {
        struct pair pair;

        standin_faults.no_norm_plans = no_plans != 0;
        pair = pair_new(&(struct pair_options){.arch = "flat",
                                               .level = "O2",
                                               .graph = graph,
                                               .shape = {3, 5, 5, 10},
                                               .plain = &backend_cuda});
        pair_train(&pair, 2);
        pair_free(&pair);
    }
    standin_faults.no_norm_plans = false;
    graph_free(&graph);
}

static void check_refused(struct graph *graph, uint32_t at, const char *name)
{
    const struct net_options options = {.batch_max = 2, .backend = &backend_cuda};
    struct err err = {.text = ""};
    struct net *net = NULL;

    at = graph_linear(graph, "fc", graph_flatten(graph, "flat", at), 10, true);
    (void)graph_cross_entropy(graph, "loss", at);
    CHECK_EQ(graph_check(graph, NULL), STATUS_OK);
    CHECK_EQ(net_new(&net, graph, &options, &err), STATUS_UNSUPPORTED);
    CHECK(net == NULL);
    if (strstr(err.text, name) == NULL)
        FAIL("%s is not in: %s", name, err.text);
    graph_free(&graph);
}

/* Images are stored with 4 channels where no convolution of bf16 reads them, other values with 8 at least. */
TEST(images_are_read_by_convolutions)
{
    const struct graph_window one = {1, 1, 0}, half = {2, 2, 0};
    struct graph *graphs[5];
    uint32_t at;

    use_standin();
    for (size_t i = 0; i < sizeof graphs / sizeof graphs[0]; i++)
        graphs[i] = graph_new();
    at = graph_input(graphs[0], 3, 8, 8);
    check_refused(graphs[0], graph_batch_norm(graphs[0], "norm", at), "layer norm: ");
    at = graph_input(graphs[1], 3, 8, 8);
    check_refused(graphs[1], graph_relu(graphs[1], "cut", at), "layer cut: ");
    at = graph_input(graphs[2], 3, 8, 8);
    check_refused(graphs[2], graph_max_pool(graphs[2], "pool", at, half), "layer pool: ");
    at = graph_input(graphs[3], 3, 8, 8);
    check_refused(graphs[3], graph_avg_pool(graphs[3], "mean", at), "layer mean: ");
    at = graph_input(graphs[4], 4, 8, 8);
    at = graph_add(graphs[4], "sum", graph_conv2d(graphs[4], "conv", at, 4, one, false), at);
    check_refused(graphs[4], at, "layer sum: ");
}

static void train_residual(const char *level, bool bf16, const struct backend *plain)
{
    struct pair pair = pair_new_residual(level, bf16, plain);

    pair_train(&pair, 2);
    pair_free(&pair);
}

/* Compared with the CPU with the same rounding, then without that: in 16 bits it also rounds before
 * the sum. */
TEST(residuals_inside_batch_norms)
{
    use_standin();
    for (int no_plans = 0; no_plans < 2; no_plans++) {
        standin_faults.no_norm_plans = no_plans != 0;
        train_residual("O0", false, NULL);
        train_residual("O1", false, NULL);
        train_residual("O2", false, NULL);
        train_residual("O3", false, NULL);
        train_residual("O2", true, NULL);
    }
    standin_faults.no_norm_plans = false;
    train_residual("O1", false, &backend_cpu);
    train_residual("O2", false, &backend_cpu);
}

/* The convolution after a residual adds its data gradient itself if there is a plan for that which
 * was not measured to be slower than the two separate steps. A launch of the stand-in takes 1
 * us. */
TEST(residual_gradients_are_added_by_plans)
{
    static const struct {
        bool no_plans;
        float one, apart;
        bool fused;
    } cases[] = {
        {false, 0, 0, true}, {true, 0, 0, false}, {false, 12, 10, false}, {false, 10.5F, 10, true}};

    use_standin();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t adds = 0;
        struct pair pair;

        standin_faults.no_add_plans = cases[i].no_plans;
        standin_plan_times_us[PLAN_CONV_DGRAD_ADD] = cases[i].one;
        standin_plan_times_us[PLAN_CONV_DGRAD] = cases[i].apart;
        memset(standin_plan_runs, 0, sizeof standin_plan_runs);
        pair = pair_new_residual("O2", false, NULL);
        pair_train(&pair, 2);
        adds = standin_plan_runs[PLAN_CONV_DGRAD_ADD];
        pair_free(&pair);
        CHECK_EQ(adds > 0, cases[i].fused);
        CHECK_EQ(adds % 2, 0);
    }
    standin_faults.no_add_plans = false;
    memset(standin_plan_times_us, 0, sizeof standin_plan_times_us);
}

/* Our own kernels take 4 launches of 1 us, the pool after a norm's plans takes 2. They are timed if
 * plans were timed, and then the faster way is taken; else, and with --deterministic, our own. */
TEST(the_faster_batch_norm_is_taken)
{
    static const struct {
        float forward, backward;
        bool deterministic, by_plans;
    } cases[] = {{0, 0, false, false},
                 {0.5F, 1, false, true},
                 {50, 50, false, false},
                 {0.5F, 1, true, false},
                 {50, 0, false, false}};

    use_standin();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pair pair;

        standin_plan_times_us[PLAN_NORM_FORWARD] = cases[i].forward;
        standin_plan_times_us[PLAN_NORM_BACKWARD] = cases[i].backward;
        memset(standin_plan_runs, 0, sizeof standin_plan_runs);
        pair = pair_new(&(struct pair_options){
            .arch = "convnet", .level = "O2", .deterministic = cases[i].deterministic});
        pair_train(&pair, 2);
        pair_free(&pair);
        CHECK_EQ(standin_plan_runs[PLAN_NORM_BACKWARD], cases[i].by_plans ? 2 * 2 : 0);
    }
    memset(standin_plan_times_us, 0, sizeof standin_plan_times_us);
}

/* With collectives, a batch norm runs as a plan only if that leaves multiprocessors for them. */
TEST(batch_norms_leave_room_for_collectives)
{
    CHECK_EQ(setenv("DDP_CUDA_NORMS", "plans", 1), 0);
    use_standin();
    for (int spares = 0; spares < 2; spares++) {
        const struct model_shape shape = {1, 28, 28, 10};
        const struct net_options options = {
            .batch_max = 2, .collective_sms = 16, .backend = &backend_cuda};
        static float images[2 * 28 * 28];
        const int64_t labels[] = {1, 2};
        struct graph *graph = NULL;
        struct net *net = NULL;

        standin_faults.no_spare_plans = spares == 0;
        memset(standin_plan_runs, 0, sizeof standin_plan_runs);
        CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
        CHECK_EQ(net_new(&net, graph, &options, NULL), STATUS_OK);
        CHECK_EQ(standin_plan_options.spared_sms, 16);
        CHECK_EQ(net_forward(net, images, labels, 2, true, NULL, NULL), STATUS_OK);
        CHECK_EQ(net_backward(net, 1.0F, NULL), STATUS_OK);
        CHECK_EQ(standin_plan_runs[PLAN_NORM_BACKWARD], spares == 1 ? 2 : 0);
        net_free(&net);
        graph_free(&graph);
    }
    standin_faults.no_spare_plans = false;
    CHECK_EQ(unsetenv("DDP_CUDA_NORMS"), 0);
    use_standin();
}

TEST(how_many_candidates_are_timed_is_passed_on)
{
    static const struct {
        const char *wish;
        uint32_t candidates;
    } cases[] = {{"1", 1}, {"33", 0}, {"-1", 0}, {"many", 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pair pair;

        CHECK_EQ(setenv("DDP_CUDA_CANDIDATES", cases[i].wish, 1), 0);
        use_standin();
        pair = pair_new(&(struct pair_options){.arch = "convnet", .level = "O0"});
        CHECK_EQ(standin_plan_options.candidates, cases[i].candidates);
        pair_free(&pair);
    }
    CHECK_EQ(unsetenv("DDP_CUDA_CANDIDATES"), 0);
    use_standin();
}

static void count_adds(void *user, const char *pass, const struct graph *graph)
{
    uint32_t *counts = user;

    for (uint32_t i = 0; strcmp(pass, "fuse") == 0 && i < graph->layer_count; i++) {
        counts[0] += graph->layers[i].op == GRAPH_ADD;
        counts[1] += graph->layers[i].fused_add;
    }
}

/* What --print-graph shows, too. */
TEST(no_addition_is_left_at_any_level)
{
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};

    use_standin();
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        const struct amp_request request = {.level = levels[l]};
        const struct model_shape shape = {3, 32, 32, 10};
        uint32_t counts[2] = {0, 0};
        struct amp amp;
        const struct net_options options = {.batch_max = 2,
                                            .amp = &amp,
                                            .graph_seen = count_adds,
                                            .graph_seen_user = counts,
                                            .backend = &backend_cuda};
        struct graph *graph = NULL;
        struct net *net = NULL;

        CHECK_EQ(amp_resolve(&amp, &request, NULL), STATUS_OK);
        CHECK_EQ(model_build(&graph, "resnet18", &shape, NULL), STATUS_OK);
        CHECK_EQ(net_new(&net, graph, &options, NULL), STATUS_OK);
        CHECK_EQ(counts[0], 0);
        CHECK_EQ(counts[1], 8);
        net_free(&net);
        graph_free(&graph);
    }
}

TEST(gradient_of_the_bias_by_our_own_kernel)
{
    struct pair pair;

    use_standin();
    standin_faults.no_bias_plans = true;
    pair = pair_new(&(struct pair_options){.arch = "convnet", .level = "O0"});
    pair_train(&pair, 2);
    pair_free(&pair);
    train_odd("O1", false);
    train_odd("O2", true);
    standin_faults.no_bias_plans = false;
}

/* Eight images: the last norms have one pixel an image, and of fewer values rounding decides too much. */
TEST(resnet18)
{
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};

    use_standin();
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        struct pair pair = pair_new(&(struct pair_options){
            .arch = "resnet18", .level = levels[l], .shape = {3, 32, 32, 10}, .batch = 8});

        pair_step(&pair, 8, false);
        pair_free(&pair);
    }
}

/* Equal to the bit to the same images as floats; of one channel and of three. */
TEST(images_as_bytes)
{
    static const char *const levels[] = {"O0", "O2"};
    struct graph *colours = pair_residual_graph();

    use_standin();
    for (size_t s = 0; s < 2; s++)
        for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
            const struct model_shape grey = {1, 12, 12, 10}, colour = {3, 8, 8, 10};
            struct pair pair =
                pair_new(&(struct pair_options){.arch = s == 0 ? "convnet" : "residual",
                                                .graph = s == 0 ? NULL : colours,
                                                .level = levels[l],
                                                .shape = s == 0 ? grey : colour,
                                                .batch = 2,
                                                .bytes = true,
                                                .plain = &backend_cuda});

            pair.tolerance = 0;
            for (int i = 0; i < 3; i++)
                pair_step(&pair, 2, true);
            pair_check(&pair);
            pair_evaluate(&pair, 1);
            pair_free(&pair);
        }
    graph_free(&colours);
}

/* By a host that writes a bucket through a view. */
TEST(the_first_infinite_gradient_is_named)
{
    static float images[4 * 12 * 12];
    const int64_t labels[] = {1, 2, 3, 4};
    const struct optim sgd = {.lr = 0.01F, .momentum = 0.9F};
    struct err err = {.text = ""};
    struct net_view view;
    struct pair pair;
    char where[160];

    use_standin();
    pair = pair_new(&(struct pair_options){.arch = "convnet", .level = "O2", .overflows = true});
    CHECK_EQ(net_forward(pair.other, images, labels, 4, true, NULL, &err), STATUS_OK);
    CHECK_EQ(net_backward(pair.other, 1.0F, &err), STATUS_OK);
    CHECK_EQ(net_bucket_open(pair.other, 0, &view, &err), STATUS_OK);
    view.values[0] = 1e30F; /* infinite in fp16 */
    CHECK_EQ(net_bucket_close(pair.other, 0, &view, &err), STATUS_OK);
    net_update(pair.other, &sgd);
    CHECK(net_scaler(pair.other).was_skipped);
    net_describe_nonfinite(pair.other, where, sizeof where);
    CHECK_STR(where, "the gradient of fc.bias");
    pair_free(&pair);
}

TEST(clipping_and_accumulation)
{
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};

    use_standin();
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        struct pair pair = pair_new(&(struct pair_options){
            .arch = "convnet", .level = levels[l], .accumulate = true, .clips = true});

        pair_train(&pair, 3);
        pair_free(&pair);
    }
}

/* The first step is eager, the second captured, the others replay the capture; a smaller batch has a
 * capture of its own. Equal to the bit to eager steps. */
TEST(captured_steps_are_the_same_steps)
{
    static const uint32_t sizes[] = {4, 4, 4, 4, 3, 3, 3, 4};
    struct pair pair;
    struct standin_counts before;

    use_standin();
    pair = pair_new(&(struct pair_options){
        .arch = "convnet", .level = "O2", .backend = &backend_cuda, .plain = &backend_cuda});
    pair.tolerance = 0;
    before = standin_counts();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        pair_step(&pair, sizes[i], true);
        pair_check(&pair);
    }
    CHECK_EQ(standin_counts().replayed - before.replayed, 6 + 7); /* steps, and ends of steps */
    CHECK(standin_counts().captured > before.captured);
    pair_evaluate(&pair, 2);
    pair_free(&pair);
}

/* Through the host and back: then steps are equal to the bit. */
TEST(resume_is_bit_exact)
{
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};

    use_standin();
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        struct pair pair = pair_new(
            &(struct pair_options){.arch = "convnet", .level = levels[l], .plain = &backend_cuda});

        pair.tolerance = 0;
        pair_resume(&pair, 2);
        pair_step(&pair, 4, false);
        pair_check(&pair);
        pair_free(&pair);
    }
}

TEST(every_optimizer)
{
    static const char *const levels[] = {"O0", "O2", "O3"};

    use_standin();
    for (size_t i = 0; i < PAIR_OPTIMS; i++)
        for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
            struct pair pair = pair_new(&(struct pair_options){
                .arch = "convnet", .level = levels[l], .optim = pair_optims[i]});

            for (int step = 0; step < 5; step++)
                pair_step(&pair, 4, false);
            pair_free(&pair);
        }
}

TEST(a_capture_that_fails_is_done_without)
{
    struct pair pair;
    struct standin_counts before;

    use_standin();
    pair = pair_new(&(struct pair_options){.arch = "convnet", .level = "O0"});
    before = standin_counts();
    standin_faults.no_captures = true;
    for (int i = 0; i < 4; i++) {
        pair_step(&pair, 4, true);
        pair_check(&pair);
    }
    standin_faults.no_captures = false;
    CHECK_EQ(standin_counts().replayed, before.replayed);
    pair_free(&pair);
}

static size_t things(void)
{
    const struct standin_counts now = standin_counts();

    return now.device_blocks + now.pinned_blocks + now.streams + now.events + now.graphs;
}

/* Whichever launch fails, the next call that can report it does so and names a layer, and
 * everything is released. */
TEST(every_failed_launch_is_reported_and_nothing_leaks)
{
    const size_t before = things();

    use_standin();
    for (uint32_t call = 1;; call += 5) {
        const struct model_shape shape = {1, 28, 28, 10};
        const struct net_options options = {.batch_max = 2, .backend = &backend_cuda};
        const struct optim sgd = {.lr = 0.1F};
        static float images[2 * 28 * 28];
        const int64_t labels[] = {1, 2};
        struct graph *graph = NULL;
        struct net_outcome outcome;
        struct net *net = NULL;
        struct err err = {.text = ""};
        enum status status;
        bool taken;

        CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
        status = net_new(&net, graph, &options, &err);
        graph_free(&graph);
        standin_faults.fail_call = call;
        if (status == STATUS_OK)
            status = net_forward(net, images, labels, 2, true, NULL, &err);
        if (status == STATUS_OK)
            status = net_backward(net, 1.0F, &err);
        if (status == STATUS_OK) {
            net_update(net, &sgd);
            status = net_outcome_take(net, true, &outcome, &taken, &err);
        }
        net_free(&net);
        CHECK_EQ(things(), before);
        if (standin_faults.fail_call > 0) { /* there were fewer launches than that */
            standin_faults.fail_call = 0;
            CHECK_EQ(status, STATUS_OK);
            CHECK(call > 20);
            return;
        }
        CHECK_EQ(status, STATUS_LIBRARY);
        CHECK(strstr(err.text, "on purpose") != NULL || strstr(err.text, "copy failed") != NULL);
    }
}

TEST_MAIN
