/* A profile of the CUDA backend over stand-ins, whose clock advances by one for each launch: every
 * launch of a step is in exactly one entry, timed steps are not captured, other steps run as usual,
 * and results do not change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/standin/cuda/standin.h"
#include "tests/lib/test.h"
#include "worker/backend/cuda/exec/backend.h"
#include "worker/model/init.h"
#include "worker/model/model.h"
#include "worker/net/net.h"
#include "worker/profile/profile.h"
#include "worker/data/rng.h"
#include "worker/net/profile.h"
#include "worker/net/state.h"

enum { BATCH = 4, PIXELS = 28, CLASSES = 10, STEPS = 3 };

static const struct optim sgd = {.lr = 0.01F, .momentum = 0.9F};
static const struct net_clip clip = {.norm = 1.0F};

static struct net *make_net(bool profile, bool accumulate)
{
    const struct model_shape shape = {1, PIXELS, PIXELS, CLASSES};
    const struct amp_request request = {.level = "O2"};
    struct err err = {.text = ""};
    struct amp amp;
    const struct net_options options = {.batch_max = BATCH,
                                        .profile = profile,
                                        .accumulate = accumulate,
                                        .optim = &sgd,
                                        .amp = &amp,
                                        .backend = &backend_cuda};
    struct graph *graph = NULL;
    struct net *net = NULL;
    struct rng rng;

    standin_seed_order(0); /* what runs between two events is what was queued between them */
    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
    rng_seed(&rng, 1);
    CHECK_EQ(amp_resolve(&amp, &request, &err), STATUS_OK);
    CHECK_EQ(model_build(&graph, "convnet", &shape, &err), STATUS_OK);
    CHECK_EQ(net_new(&net, graph, &options, &err), STATUS_OK);
    CHECK_EQ(init_torch_default(net, graph, &rng, &err), STATUS_OK);
    graph_free(&graph);
    return net;
}

static void forward_and_backward(struct net *net)
{
    static const int64_t labels[BATCH] = {1, 2, 3, 4};
    static float pixels[BATCH * PIXELS * PIXELS];
    struct err err = {.text = ""};
    struct rng rng;

    rng_seed(&rng, 2);
    rng_uniform_f32(&rng, 0.0F, 1.0F, pixels, BATCH * PIXELS * PIXELS);
    CHECK_EQ(net_forward(net, pixels, labels, BATCH, true, NULL, &err), STATUS_OK);
    CHECK_EQ(net_backward_reduce(net, 1.0F, &err), STATUS_OK);
}

/* The last loss. */
static double run_steps(struct net *net)
{
    struct net_outcome outcome = {.result = {.images = 0}};

    for (int i = 0; i < STEPS; i++) {
        struct err err = {.text = ""};
        bool taken;

        net_step_graphable(net);
        forward_and_backward(net);
        net_clip(net, &clip);
        net_update(net, &sgd);
        CHECK_EQ(net_outcome_take(net, true, &outcome, &taken, &err), STATUS_OK);
    }
    return outcome.result.loss_sum;
}

/* Launches that the entries have, and how many entries there are of `name`. */
static uint64_t sum_us(const struct net *net, const char *name, uint64_t *calls)
{
    struct net_profile entry;
    uint64_t us = 0;

    *calls = 0;
    for (uint32_t i = 0; net_profile(net, i, &entry); i++) {
        us += name == NULL || strcmp(entry.layer, name) == 0 ? entry.ns / 1000 : 0;
        *calls += name != NULL && strcmp(entry.layer, name) == 0 ? entry.calls : 0;
    }
    return us;
}

/* Except the outcome: two copies at the end of each step. */
TEST(every_launch_is_in_one_entry)
{
    struct net *net = make_net(true, false);
    struct standin_counts before, after;
    uint64_t calls;

    net_profile_set(net, false);
    (void)run_steps(net);
    CHECK_EQ(sum_us(net, NULL, &calls), 0);
    net_profile_set(net, true);
    before = standin_counts();
    (void)run_steps(net);
    after = standin_counts();
    CHECK_EQ(after.replayed, before.replayed); /* none from a capture */
    CHECK_EQ(sum_us(net, NULL, &calls), after.runs - before.runs - 2 * STEPS);
    net_free(&net);
}

TEST(layers_and_parts_are_named)
{
    static const char *const names[] = {"layer1.0", "layer1.1",  "layer2.0",     "fc",      "loss",
                                        "images",   "optimizer", "finite check", "clipping"};
    struct net *net = make_net(true, false);

    (void)run_steps(net);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uint64_t calls, us = sum_us(net, names[i], &calls);

        if (us == 0 || calls < STEPS || calls > 2 * STEPS)
            (void)printf("%s: %u calls\n", names[i], (unsigned)calls);
        CHECK(us > 0 && calls >= STEPS && calls <= 2 * STEPS);
    }
    net_free(&net);
}

TEST(steps_that_are_not_timed_are_captured)
{
    struct net *net = make_net(true, false), *plain = make_net(false, false);
    struct net_profile entry;
    uint64_t before, calls, us, by_plain;
    double loss;

    before = standin_counts().replayed;
    loss = run_steps(plain);
    by_plain = standin_counts().replayed - before;
    CHECK(by_plain > 0);
    CHECK(!net_profile(plain, 0, &entry));
    net_profile_set(net, false);
    before = standin_counts().replayed;
    CHECK(run_steps(net) == loss);
    CHECK_EQ(standin_counts().replayed - before, by_plain);
    net_profile_set(net, true);
    CHECK(run_steps(net) == run_steps(plain)); /* the same numbers, captured or timed */
    us = sum_us(net, NULL, &calls);
    net_profile_set(net, false);
    CHECK(run_steps(net) == run_steps(plain));
    CHECK_EQ(sum_us(net, NULL, &calls), us);
    net_free(&net);
    net_free(&plain);
}

TEST(inner_steps_are_counted)
{
    struct net *net = make_net(true, true);
    uint64_t calls;

    forward_and_backward(net);
    net_grads_keep(net);
    net_grads_join(net);
    forward_and_backward(net);
    net_update(net, &sgd);
    (void)sum_us(net, "layer1.0", &calls);
    CHECK_EQ(calls, 4); /* forward and backward, twice */
    net_free(&net);
}

static enum status halve(void *context, void *memory, size_t count, enum graph_dtype dtype,
                         struct CUstream_st *stream, struct err *err)
{
    (void)context;
    (void)err;
    CHECK_EQ(standin_kernels.scale(memory, (enum kernel_type)dtype, memory, (enum kernel_type)dtype,
                                   0.5F, count, stream),
             0);
    return STATUS_OK;
}

TEST(reductions_are_beside)
{
    const struct device_collective collective = {.sum = halve};
    struct net *net = make_net(true, false);
    struct reducer reducer;
    struct net_profile entry;
    bool found = false;

    CHECK_EQ(net_device_reducer(net, &collective, &reducer, NULL), STATUS_OK);
    net_set_reducer(net, &reducer);
    forward_and_backward(net);
    net_update(net, &sgd);
    for (uint32_t i = 0; net_profile(net, i, &entry); i++) {
        if (strcmp(entry.layer, "reduction") != 0)
            continue;
        found = true;
        CHECK(entry.is_beside && entry.phase == NET_PHASE_REDUCE);
        CHECK_EQ(entry.calls, net_bucket_count(net));
        CHECK(entry.ns > 0);
    }
    CHECK(found);
    net_free(&net);
}

TEST(everything_is_given_back)
{
    const struct standin_counts before = standin_counts();
    struct net *net = make_net(true, false);

    (void)run_steps(net);
    net_free(&net);
    CHECK_EQ(standin_counts().events, before.events);
    CHECK_EQ(standin_counts().device_blocks, before.device_blocks);
}

TEST_MAIN
