/* Gradients reduced on the device: every bucket once in each step, within the capture, in the
 * requested form. The reducer of this test halves, as if the other rank's gradients were 0. */
#include <string.h>

#include "kernels/values.h"
#include "tests/lib/net_pair.h"
#include "tests/standin/cuda/standin.h"
#include "tests/lib/test.h"
#include "worker/backend/cuda/exec/backend.h"
#include "worker/net/state.h"

enum { CALLS_MAX = 256, STEPS = 4 };

struct halve {
    void *memory;
    size_t count;
    enum graph_dtype dtype;
};

/* What the reducer was asked for. */
struct seen {
    uint32_t calls;
    enum graph_dtype dtypes[CALLS_MAX];
    uint64_t launches[CALLS_MAX]; /* of the stand-in, before the call */
};

static void run_halve(void *args)
{
    const struct halve *halve = args;

    for (size_t i = 0; i < halve->count; i++)
        values_set(halve->memory, (enum kernel_type)halve->dtype, i,
                   0.5F * values_get(halve->memory, (enum kernel_type)halve->dtype, i));
}

static enum status halve(void *context, void *memory, size_t count, enum graph_dtype dtype,
                         struct CUstream_st *stream, struct err *err)
{
    const struct halve args = {memory, count, dtype};
    struct seen *seen = context;

    CHECK(seen->calls < CALLS_MAX);
    seen->dtypes[seen->calls] = dtype;
    seen->launches[seen->calls++] = standin_counts().launches;
    if (stream == NULL || standin_queue(stream, run_halve, &args, sizeof args) != 0)
        return err_set(err, STATUS_LIBRARY, 0, "no reduce on purpose");
    return STATUS_OK;
}

/* `collective`: the form; its function and context are set here. */
static struct pair new_pair(struct device_collective collective, struct seen *seen,
                            const char *level)
{
    const bool halves = collective.postscale == 0.0F;
    struct reducer reducer;
    struct pair pair;

    *seen = (struct seen){0};
    collective.sum = halve;
    collective.context = seen;
    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
    pair = pair_new(&(struct pair_options){.arch = "convnet", .level = level, .halves = halves});
    CHECK_EQ(net_device_reducer(pair.other, &collective, &reducer, NULL), STATUS_OK);
    CHECK_EQ(net_device_reducer(pair.cpu, &collective, &reducer, NULL), STATUS_UNSUPPORTED);
    CHECK(reducer.graphable);
    CHECK(reducer.prescale == (collective.prescale > 0.0F ? collective.prescale : 1.0F));
    net_set_reducer(pair.other, &reducer);
    CHECK(net_bucket_count(pair.cpu) > 1);
    return pair;
}

static void train(struct pair *pair)
{
    for (int i = 0; i < STEPS; i++) {
        pair_step(pair, 4, true);
        pair_check(pair);
    }
}

/* The first step is eager, the second is captured; where that fails, it is eager too. */
TEST(once_a_step_and_in_the_capture)
{
    for (int no_captures = 0; no_captures < 2; no_captures++) {
        struct seen seen;
        struct pair pair = new_pair((struct device_collective){.postscale = 0.0F}, &seen, "O2");

        standin_faults.no_captures = no_captures != 0;
        train(&pair);
        standin_faults.no_captures = false;
        CHECK_EQ(seen.calls, net_bucket_count(pair.cpu) * (no_captures ? STEPS + 1U : 2U));
        pair_free(&pair);
    }
}

/* As before the communicator is closed: no capture is left, and later steps are eager. */
TEST(dropped_captures_are_gone_and_not_made_again)
{
    const size_t before = standin_counts().graphs;
    struct seen seen;
    struct pair pair = new_pair((struct device_collective){.postscale = 0.0F}, &seen, "O2");
    uint64_t replayed;

    train(&pair);
    CHECK_EQ(standin_counts().graphs, before + 2); /* forward and backward; the end */
    net_drop_captures(pair.other);
    CHECK_EQ(standin_counts().graphs, before);
    net_drop_captures(pair.other);
    replayed = standin_counts().replayed;
    train(&pair);
    CHECK_EQ(standin_counts().graphs, before);
    CHECK_EQ(standin_counts().replayed, replayed);
    pair_free(&pair);
}

TEST(with_a_factor_after_it)
{
    static const char *const levels[] = {"O0", "O2", "O3"};

    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        struct seen seen;
        struct pair pair =
            new_pair((struct device_collective){.postscale = 2.0F}, &seen, levels[l]);

        train(&pair);
        pair_free(&pair);
    }
}

/* NCCL sums: backward multiplies by the prescale, in what is captured too. */
TEST(with_a_factor_before_it)
{
    static const char *const levels[] = {"O0", "O2"};

    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        struct seen seen;
        struct pair pair = new_pair((struct device_collective){.prescale = 2.0F, .postscale = 1.0F},
                                    &seen, levels[l]);

        train(&pair); /* halved by the sum: as without */
        pair_free(&pair);
    }
}

TEST(halves_travel_as_floats)
{
    for (int factor = 0; factor < 2; factor++) {
        struct seen seen;
        struct pair pair =
            new_pair((struct device_collective){.in_fp32 = true, .postscale = factor ? 2.0F : 0.0F},
                     &seen, "O3");

        train(&pair);
        CHECK_EQ(seen.calls, 2 * net_bucket_count(pair.cpu));
        for (uint32_t i = 0; i < seen.calls; i++)
            CHECK_EQ(seen.dtypes[i], GRAPH_F32);
        pair_free(&pair);
    }
}

/* Launches of backward between the first bucket's reduction and the last one's, in a plain step. */
static uint64_t between(bool delays)
{
    struct seen seen;
    struct pair pair = new_pair((struct device_collective){.delays = delays}, &seen, "O0");
    const uint32_t buckets = net_bucket_count(pair.cpu);
    uint64_t launches;

    train(&pair);
    CHECK_EQ(seen.calls, 2 * buckets);
    launches = seen.launches[buckets - 1] - seen.launches[0];
    pair_free(&pair);
    return launches - (buckets - 1); /* the reducer's own */
}

TEST(beside_backward_or_after_it)
{
    CHECK(between(false) > 0);
    CHECK_EQ(between(true), 0);
}

/* If any call cannot be captured, the step runs eagerly, with the same bits. */
TEST(a_launch_that_cannot_be_captured)
{
    for (uint32_t call = 1;; call += 3) {
        struct seen seen;
        struct pair pair =
            new_pair((struct device_collective){.delays = call % 2 == 0}, &seen, "O2");
        uint64_t replayed;

        standin_faults.fail_captured = call;
        train(&pair);
        replayed = standin_counts().replayed;
        train(&pair);
        pair_free(&pair);
        if (standin_faults.fail_captured > 0) { /* there were not that many */
            standin_faults.fail_captured = 0;
            CHECK_EQ(standin_counts().replayed - replayed, 2 * STEPS);
            CHECK(call > 20);
            return;
        }
        CHECK_EQ(standin_counts().replayed - replayed, 0);
    }
}

TEST_MAIN
