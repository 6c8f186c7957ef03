/* The captured end of a step is bit-identical to an eager one, whatever changes from step to
 * step. */
#include <stdlib.h>

#include "tests/lib/net_pair.h"
#include "tests/standin/cuda/standin.h"
#include "tests/lib/test.h"
#include "worker/backend/cuda/exec/backend.h"
#include "worker/net/state.h"

enum { STEPS = 6 };

/* Two nets of the CUDA backend; the first is never captured. */
static struct pair new_pair(const struct pair_options *options)
{
    struct pair_options both = *options;
    struct pair pair;

    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
    both.arch = "convnet";
    both.plain = &backend_cuda;
    pair = pair_new(&both);
    pair.tolerance = 0;
    return pair;
}

/* Steps and their ends that were replayed, of `count` steps. */
static uint64_t replayed(struct pair *pair, int count)
{
    const uint64_t before = standin_counts().replayed;

    for (int i = 0; i < count; i++) {
        pair_step(pair, 4, true);
        pair_check(pair);
    }
    return standin_counts().replayed - before;
}

TEST(rates_that_change)
{
    static const char *const levels[] = {"O0", "O2", "O3"};

    for (size_t i = 0; i < PAIR_OPTIMS; i++)
        for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
            struct pair pair =
                new_pair(&(struct pair_options){.level = levels[l], .optim = pair_optims[i]});
            struct optim *optim = &pair.options.optim;
            uint64_t count = 0;

            for (int step = 0; step < STEPS; step++) {
                count += replayed(&pair, 1);
                optim->lr *= 0.8F;
                optim->momentum *= 0.97F;
                optim->beta1 *= 0.97;
            }
            /* With dampening the second step asks whether the first one was skipped. */
            CHECK_EQ(count, 2 * (STEPS - 1) - (optim->dampening != 0.0F));
            pair_free(&pair);
        }
}

/* The code waits only for launches that run: the stand-in fails a test that waits during a capture,
 * since with CUDA a wait invalidates the capture. */
TEST(launches_that_are_waited_for)
{
    struct pair pair;

    CHECK_EQ(setenv("DDP_CUDA_SYNC", "1", 1), 0);
    pair = new_pair(&(struct pair_options){.level = "O2", .clips = true});
    CHECK_EQ(unsetenv("DDP_CUDA_SYNC"), 0);
    CHECK_EQ(replayed(&pair, STEPS), 2 * (STEPS - 1));
    pair_free(&pair);
}

TEST(clipping_comes_and_goes)
{
    struct pair pair = new_pair(&(struct pair_options){.level = "O2", .clips = true});

    CHECK_EQ(replayed(&pair, 4), 3 + 3);
    pair.options.clips = false; /* once eagerly, then a new capture */
    CHECK_EQ(replayed(&pair, 3), 3 + 2);
    pair_free(&pair);
}

TEST(another_option_is_another_capture)
{
    struct pair pair = new_pair(&(struct pair_options){.level = "O1"});

    CHECK_EQ(replayed(&pair, 3), 2 + 2);
    pair.options.optim.weight_decay = 0.1F;
    CHECK_EQ(replayed(&pair, 3), 3 + 2);
    pair_free(&pair);
}

static void set_scale(struct pair *pair, float scale)
{
    struct scaler scaler = net_scaler(pair->cpu);

    scaler.scale = scale;
    scaler.max = 1e30F;
    net_scaler_write(pair->cpu, &scaler);
    net_scaler_write(pair->other, &scaler);
}

TEST(steps_that_are_skipped)
{
    struct pair pair = new_pair(&(struct pair_options){.level = "O2", .overflows = true});
    struct scaler scaler;

    set_scale(&pair, 128.0F);
    CHECK_EQ(replayed(&pair, 3), 2 + 2);
    set_scale(&pair, 1e30F);
    for (int i = 0; i < 3; i++) /* their gradients are no numbers */
        pair_step(&pair, 4, true);
    scaler = net_scaler(pair.other);
    CHECK_EQ(scaler.skipped_in_a_row, 3);
    CHECK_EQ(scaler.applied, 3);
    CHECK_NEAR(scaler.scale, 1e30 / 8, 1e24);
    set_scale(&pair, 128.0F);
    CHECK_EQ(replayed(&pair, 1), 1 + 1);
    pair_free(&pair);
}

TEST_MAIN
