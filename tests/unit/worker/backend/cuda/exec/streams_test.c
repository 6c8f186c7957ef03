/* Every dependency between the streams of the backend, the host's included: a net trains several
 * steps while the host waits for nothing that it need not wait for, and the stand-in draws the order
 * in which the device runs what the streams have (tests/standin/cuda/standin.h). Whatever is drawn,
 * the parameters are those of a device that runs everything at once, to the bit.
 *
 * Each wait of the product was taken out once, and a test here failed:
 *   exec/images.c  images on their way to the device -> the step that reads them     steps_eager
 *   exec/images.c  the step that reads a slot -> the next images into it             steps_eager
 *   exec/images.c  the copy of a slot -> the host's next images into it              steps_eager
 *   exec/images.c  the copy of lent memory -> the host's next images into it         images_lent
 *   exec/reduce.c  gradients of a bucket -> their reduction                          reductions
 *   exec/reduce.c  reductions of all buckets -> the end of the step                  reductions
 *   exec/views.c   gradients of a bucket -> the host that reads them                 views
 *   exec/views.c   the host's copy of a bucket -> the host that uses it              views
 *   exec/outcome.c the outcome of a step -> the host that reads it                   outcomes */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io/mono.h"
#include "kernels/values.h"
#include "tests/lib/test.h"
#include "tests/standin/cuda/standin.h"
#include "worker/backend/cuda/exec/backend.h"
#include "worker/model/init.h"
#include "worker/net/net.h"
#include "worker/net/state.h"

enum { BATCH = 4, SIDE = 8, STEPS = 6, SEEDS = 16 };

/* What one run does. */
struct run {
    bool is_graphable; /* steps are captured and replayed */
    bool reduces;      /* on the device, in place: halves */
    bool views;        /* the host reads and writes every bucket before the optimizer */
    bool delays;       /* reductions only after backward */
    bool outcomes;     /* the host waits for every step's outcome */
    uint32_t lends;    /* bytes are read in so many pieces of memory of net_images_new, in turn */
};

struct halve {
    void *memory;
    size_t count;
    enum kernel_type type;
};

static void run_halve(void *args)
{
    const struct halve *halve = args;

    for (size_t i = 0; i < halve->count; i++)
        values_set(halve->memory, halve->type, i, 0.5F * values_get(halve->memory, halve->type, i));
}

static enum status reduce_halve(void *user, void *memory, size_t count, enum graph_dtype dtype,
                                struct CUstream_st *stream, struct err *err)
{
    const struct halve halve = {memory, count, (enum kernel_type)dtype};

    (void)user;
    (void)err;
    CHECK_EQ(standin_queue(stream, run_halve, &halve, sizeof halve), 0);
    return STATUS_OK;
}

static struct graph *small_graph(void)
{
    struct graph *graph = graph_new();
    const struct graph_window three = {3, 1, 1}, two = {2, 2, 0};
    uint32_t at = graph_input(graph, 1, SIDE, SIDE);

    at = graph_batch_norm(graph, "norm", graph_conv2d(graph, "conv", at, 8, three, true));
    at = graph_max_pool(graph, "pool", graph_relu(graph, "relu", at), two);
    at = graph_linear(graph, "hidden", graph_flatten(graph, "flat", at), 16, true);
    at = graph_linear(graph, "fc", graph_relu(graph, "cut", at), 10, true);
    (void)graph_cross_entropy(graph, "loss", at);
    return graph;
}

static const struct cuda_runtime *runtime = &standin_runtime;

static struct net *make_net(const struct run *run)
{
    const struct device_collective collective = {.sum = reduce_halve, .delays = run->delays};
    struct reducer reducer;
    const struct optim sgd = {.lr = 0.05F, .momentum = 0.9F};
    const struct amp_request request = {.level = "O2", .loss_scale = "128.0"};
    struct amp amp;
    const struct net_options options = {.batch_max = BATCH,
                                        .bucket_first_bytes = 64,
                                        .bucket_bytes = 1024,
                                        .amp = &amp,
                                        .optim = &sgd,
                                        .backend = &backend_cuda};
    struct graph *graph = small_graph();
    struct net *net = NULL;
    struct rng rng;

    rng_seed(&rng, 1);
    CHECK_EQ(amp_resolve(&amp, &request, NULL), STATUS_OK);
    cuda_backend_use(runtime, &standin_kernels, &standin_plans, 0);
    CHECK_EQ(net_new(&net, graph, &options, NULL), STATUS_OK);
    CHECK_EQ(net_device_reducer(net, &collective, &reducer, NULL), STATUS_OK);
    if (run->reduces)
        net_set_reducer(net, &reducer);
    CHECK_EQ(init_torch_default(net, graph, &rng, NULL), STATUS_OK);
    CHECK(net_bucket_count(net) > 2);
    graph_free(&graph);
    return net;
}

/* As the host reduces them: buckets in order, each as a copy that goes back. */
static void double_buckets(struct net *net)
{
    for (uint32_t b = 0; b < net_bucket_count(net); b++) {
        struct net_view view;

        CHECK_EQ(net_bucket_open(net, b, &view, NULL), STATUS_OK);
        for (size_t i = 0; i < view.count; i++)
            view.values[i] *= 2.0F;
        CHECK_EQ(net_bucket_close(net, b, &view, NULL), STATUS_OK);
    }
}

enum { LENT_MAX = 3 };
static void *lent[LENT_MAX];

/* The images as bytes, where the device reads them; memory is written again once it was settled. */
static struct net_images lend(struct net *net, uint32_t count, uint32_t index, const float *images)
{
    static const struct net_normal normal = {.mean = {0.3F}, .std = {0.5F, 1, 1, 1}};
    uint8_t *bytes = lent[index % count];

    CHECK_EQ(net_images_settle(net, bytes, NULL), STATUS_OK);
    for (int i = 0; i < BATCH * SIDE * SIDE; i++)
        bytes[i] = (uint8_t)(images[i] * 256.0F);
    return (struct net_images){.bytes = bytes, .normal = &normal};
}

/* The loss if the host waits for it; otherwise 0. */
static double step(const struct run *run, struct net *net, uint32_t index)
{
    struct net_images given = {.floats = NULL};
    struct net_outcome outcome = {.result = {0}};
    bool taken = false;
    const struct optim sgd = {.lr = 0.05F, .momentum = 0.9F};
    float images[BATCH * SIDE * SIDE];
    int64_t labels[BATCH];
    struct rng rng;

    rng_seed(&rng, 100 + index);
    rng_uniform_f32(&rng, 0.0F, 1.0F, images, BATCH * SIDE * SIDE);
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int64_t)(rng_u32(&rng) % 10);
    if (run->is_graphable)
        net_step_graphable(net);
    given.floats = images;
    if (run->lends > 0)
        given = lend(net, run->lends, index, images);
    CHECK_EQ(net_forward_images(net, &given, labels, BATCH, true, NULL, NULL), STATUS_OK);
    CHECK_EQ(net_backward_reduce(net, 1.0F, NULL), STATUS_OK);
    if (run->views)
        double_buckets(net);
    net_update(net, &sgd);
    if (run->outcomes)
        CHECK_EQ(net_outcome_take(net, true, &outcome, &taken, NULL), STATUS_OK);
    CHECK_EQ(taken, run->outcomes);
    return outcome.result.loss_sum;
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3U;
    return hash;
}

/* The losses and all parameters after the steps, in one number. */
static uint64_t train(const struct run *run, uint64_t seed)
{
    uint64_t hash = 0xcbf29ce484222325U;
    struct net *net;

    standin_seed_order(seed);
    net = make_net(run);
    for (uint32_t i = 0; i < run->lends; i++) {
        lent[i] = net_images_new(net, BATCH * SIDE * SIDE);
        CHECK(lent[i] != NULL);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        const double loss = step(run, net, i);

        hash = mix(hash, &loss, sizeof loss);
    }
    for (uint32_t i = 0; i < net_tensor_count(net); i++) {
        const size_t bytes = net_tensor(net, i)->count * sizeof(float);
        float *values = malloc(bytes);

        CHECK(values != NULL);
        CHECK_EQ(net_tensor_read(net, i, values, NULL), STATUS_OK);
        hash = mix(hash, values, bytes);
        free(values);
    }
    for (uint32_t i = 0; i < run->lends; i++)
        net_images_free(net, lent[i]);
    net_free(&net);
    return hash;
}

static void check_orders(const struct run *run)
{
    const uint64_t expected = train(run, 0);
    uint32_t differ = 0, first = 0;

    for (uint32_t seed = 1; seed <= SEEDS; seed++)
        if (train(run, seed) != expected) {
            first = differ++ == 0 ? seed : first;
        }
    if (differ > 0)
        FAIL("%u of %d orders give other parameters, first seed %u", differ, SEEDS, first);
}

TEST(steps_eager)
{
    check_orders(&(struct run){.is_graphable = false});
}

TEST(steps_captured)
{
    const uint64_t before = standin_counts().replayed;

    check_orders(&(struct run){.is_graphable = true});
    CHECK_EQ(standin_counts().replayed - before, 2 * (STEPS - 1) * (SEEDS + 1));
}

TEST(images_lent)
{
    for (uint32_t count = 1; count <= LENT_MAX; count++) {
        check_orders(&(struct run){.lends = count});
        check_orders(&(struct run){.lends = count, .is_graphable = true});
    }
}

TEST(reductions)
{
    check_orders(&(struct run){.reduces = true});
    check_orders(&(struct run){.reduces = true, .delays = true});
}

/* A stream that the capture does not join, or that it never forked to, is refused: no replay. */
TEST(reductions_captured)
{
    const uint64_t before = standin_counts().replayed;

    check_orders(&(struct run){.reduces = true, .is_graphable = true});
    CHECK_EQ(standin_counts().replayed - before, 2 * (STEPS - 1) * (SEEDS + 1));
}

TEST(views)
{
    check_orders(&(struct run){.views = true});
}

/* The next one, if it is there. */
static bool take_one(struct net *net, bool waits, uint32_t *count, double losses[STEPS])
{
    struct net_outcome outcome;
    bool taken;

    CHECK_EQ(net_outcome_take(net, waits, &outcome, &taken, NULL), STATUS_OK);
    if (!taken)
        return false;
    CHECK(*count < STEPS && outcome.result.images == BATCH);
    losses[(*count)++] = outcome.result.loss_sum;
    return true;
}

/* As training reads them: each outcome once, at most one step late. */
TEST(outcomes_come_in_order_and_may_be_late)
{
    const struct run run = {.is_graphable = true};
    double expected[STEPS];
    uint32_t late = 0;

    for (uint32_t seed = 0; seed <= SEEDS; seed++) {
        double losses[STEPS];
        uint32_t count = 0;
        struct net *net;

        standin_seed_order(seed);
        net = make_net(&run);
        for (uint32_t i = 0; i < STEPS; i++) {
            (void)step(&run, net, i);
            while (take_one(net, count < i, &count, losses))
                ;
            late += count < i + 1;
        }
        while (take_one(net, true, &count, losses))
            ;
        CHECK_EQ(count, STEPS);
        if (seed == 0)
            memcpy(expected, losses, sizeof expected);
        CHECK_BYTES(losses, expected, sizeof expected);
        net_free(&net);
    }
    CHECK(late > 0 && late < SEEDS * STEPS); /* both happened */
}

static void read_device_memory(void)
{
    void *memory = NULL;
    volatile float *values;

    CHECK_EQ(standin_runtime.memory_new(&memory, 64, NULL), STATUS_OK);
    values = memory;
    (void)signal(SIGSEGV, SIG_DFL);
    _exit(values[0] == 0.0F ? 0 : 1);
}

TEST(the_fence_bites)
{
    pid_t pid = fork();
    int how = 0;

    CHECK(pid >= 0);
    if (pid == 0)
        read_device_memory();
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    CHECK(WIFSIGNALED(how) || WEXITSTATUS(how) > 1); /* a sanitizer exits with its own code */
}

enum { STEP_US = 20 }; /* less than the host needs for a step of the stand-in */

static enum status elapsed_of_a_step(struct CUevent_st *begin, struct CUevent_st *end, double *us,
                                     struct err *err)
{
    (void)err;
    CHECK(begin != end);
    *us = STEP_US;
    return STATUS_OK;
}

/* Rates are over the times at which the device ended steps: a host that looks late, and finds two
 * outcomes at once, does not take their time for 0. */
TEST(a_step_ends_at_the_devices_time)
{
    const struct run run = {.is_graphable = true};
    struct cuda_runtime timed = standin_runtime;
    uint64_t last_us = 0;
    struct net *net;

    timed.event_elapsed = elapsed_of_a_step;
    runtime = &timed;
    standin_seed_order(0);
    net = make_net(&run);
    for (uint32_t i = 0; i < STEPS; i++) {
        struct net_outcome outcome;
        bool taken = i % 2 == 1;

        (void)step(&run, net, i);
        for (uint32_t k = 0; taken && k < 2; k++) {
            CHECK_EQ(net_outcome_take(net, true, &outcome, &taken, NULL), STATUS_OK);
            CHECK(taken && outcome.ended_us <= mono_us());
            if (last_us > 0)
                CHECK_EQ(outcome.ended_us - last_us, STEP_US);
            last_us = outcome.ended_us;
        }
    }
    runtime = &standin_runtime;
    net_free(&net);
}

TEST(outcomes)
{
    check_orders(&(struct run){.outcomes = true});
    check_orders(&(struct run){.outcomes = true, .is_graphable = true});
}

TEST_MAIN
