/* Schedules against torch.optim.lr_scheduler's own values (values.h), and early stopping. */
#include "tests/lib/test.h"
#include "tests/unit/worker/net/schedule_values.h"
#include "worker/net/schedule.h"

#include <math.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define RELATIVE 1e-12

static struct schedule_options options_of(enum schedule_kind kind, uint32_t epochs, uint64_t steps)
{
    struct schedule_options options;

    schedule_defaults(&options);
    options.kind = kind;
    options.base_lr = 0.1;
    options.base_momentum = 0.9;
    options.epochs = epochs;
    options.steps_per_epoch = steps;
    return options;
}

static void check_now(struct schedule_now now, struct schedule_now expected, size_t at)
{
    if (!(fabs(now.lr - expected.lr) <= RELATIVE * fabs(expected.lr)) ||
        !(fabs(now.momentum - expected.momentum) <= RELATIVE))
        FAIL("at %zu: lr %.17g momentum %.17g, torch %.17g and %.17g", at, now.lr, now.momentum,
             expected.lr, expected.momentum);
}

/* One position for each value: by epoch, one step each. */
static void check_epochs(const struct schedule_options *options,
                         const struct schedule_now *expected, size_t count)
{
    const struct schedule_state state = {0};

    for (size_t i = 0; i < count; i++)
        check_now(schedule_at(options, &state, i, (uint32_t)i, 0), expected[i], i);
}

TEST(step_is_torchs)
{
    struct schedule_options options = options_of(SCHEDULE_STEP, 12, 1);

    options.step_epochs = 3;
    options.gamma = 0.5;
    check_epochs(&options, step_values, COUNT(step_values));
}

TEST(cosine_is_torchs)
{
    struct schedule_options options = options_of(SCHEDULE_COSINE, 20, 1);

    options.min_lr = 0.001;
    check_epochs(&options, cosine_values, COUNT(cosine_values));
}

TEST(one_cycle_is_torchs_momentum_too)
{
    struct schedule_options options = options_of(SCHEDULE_ONECYCLE, 4, 10);

    check_epochs(&options, one_cycle_values, COUNT(one_cycle_values));
    options.three_phase = true;
    options.pct_start = 0.25;
    check_epochs(&options, one_cycle_three_values, COUNT(one_cycle_three_values));
    options = options_of(SCHEDULE_ONECYCLE, 1, 10);
    options.cycle_momentum = false;
    check_epochs(&options, one_cycle_fixed_values, COUNT(one_cycle_fixed_values));
}

static void check_plateau(const struct schedule_options *options,
                          const struct schedule_now *expected)
{
    struct schedule_state state = {0};

    for (size_t i = 0; i < COUNT(plateau_metrics); i++) {
        check_now(schedule_at(options, &state, i, (uint32_t)i, 0), expected[i], i);
        schedule_metric(options, &state, plateau_metrics[i]);
    }
}

TEST(plateau_is_torchs)
{
    struct schedule_options options = options_of(SCHEDULE_PLATEAU, 60, 1);

    options.patience = 2;
    options.gamma = 0.5;
    check_plateau(&options, plateau_values);
    options.plateau_max = true;
    options.patience = 1;
    options.cooldown = 2;
    options.threshold = 0.05;
    options.threshold_absolute = true;
    options.min_lr = 0.004;
    options.gamma = 0.3;
    check_plateau(&options, plateau_max_values);
}

/* A best that is not finite could not be stored in a checkpoint. */
TEST(what_is_not_finite_is_no_improvement)
{
    static const double values[] = {NAN, INFINITY};

    for (size_t i = 0; i < COUNT(values); i++) {
        struct schedule_options options = options_of(SCHEDULE_PLATEAU, 60, 1);
        struct schedule_state state = {0};
        struct early_stop stop = {.patience = 2};

        options.patience = 0;
        schedule_metric(&options, &state, values[i]);
        CHECK(!state.plateau_has_best);
        CHECK_NEAR(schedule_at(&options, &state, 0, 0, 0).lr, 0.01, 1e-15);
        CHECK(!early_stop_update(&stop, values[i]));
        CHECK(!stop.has_best);
        CHECK(early_stop_update(&stop, values[i]));
    }
}

TEST(warm_up_from_zero_is_the_seeds_and_the_default_is_not)
{
    struct schedule_options options = options_of(SCHEDULE_CONSTANT, 8, 1);
    const struct schedule_state state = {0};

    options.warmup_epochs = 5;
    options.warmup_from_zero = true;
    check_epochs(&options, warmup_values, COUNT(warmup_values));
    options.warmup_from_zero = false;
    CHECK_NEAR(schedule_at(&options, &state, 0, 0, 0).lr, 0.02, 1e-15);
    CHECK_NEAR(schedule_at(&options, &state, 0, 4, 0).lr, 0.1, 1e-15);
    CHECK_NEAR(schedule_at(&options, &state, 0, 5, 0).lr, 0.1, 1e-15);
}

TEST(imagenet_is_apexs_and_the_default_ends_at_the_base)
{
    static const uint32_t epochs[] = {0, 1, 4, 5, 29, 30, 60, 79, 80, 89};
    struct schedule_options options = options_of(SCHEDULE_IMAGENET, 90, 4);
    const struct schedule_state state = {0};

    options.imagenet_as_apex = true;
    for (size_t i = 0; i < COUNT(imagenet_values); i++)
        check_now(schedule_at(&options, &state, 0, epochs[i / 4], i % 4), imagenet_values[i], i);
    options.imagenet_as_apex = false;
    CHECK_NEAR(schedule_at(&options, &state, 0, 4, 3).lr, 0.1, 1e-15);
    CHECK_NEAR(schedule_at(&options, &state, 0, 0, 0).lr, 0.1 / 20, 1e-15);
}

TEST(warm_up_and_cosine_together_end_at_the_minimum)
{
    struct schedule_options options = options_of(SCHEDULE_COSINE, 10, 1);
    const struct schedule_state state = {0};

    options.warmup_epochs = 2;
    CHECK_NEAR(schedule_at(&options, &state, 0, 0, 0).lr, 0.05, 1e-15);
    CHECK_NEAR(schedule_at(&options, &state, 0, 2, 0).lr, 0.1, 1e-15);
    CHECK_NEAR(schedule_at(&options, &state, 0, 6, 0).lr, 0.05, 1e-15);
    CHECK_NEAR(schedule_at(&options, &state, 0, 10, 0).lr, 0.0, 1e-15);
    CHECK_NEAR(schedule_at(&options, &state, 0, 14, 0).lr, 0.0,
               1e-15);  /* later ones: as the last */
    options.epochs = 1; /* those of a checkpoint */
    CHECK_NEAR(schedule_at(&options, &state, 0, 4, 0).lr, 0.1, 1e-15);
}

TEST(options_that_contradict_are_refused)
{
    struct schedule_options options = options_of(SCHEDULE_ONECYCLE, 1, 2);
    struct err err;

    CHECK_EQ(schedule_check(&options, &err), STATUS_BAD_INPUT);
    options = options_of(SCHEDULE_IMAGENET, 90, 4);
    options.warmup_epochs = 1;
    CHECK_EQ(schedule_check(&options, &err), STATUS_BAD_INPUT);
    options = options_of(SCHEDULE_CONSTANT, 2, 4);
    options.warmup_epochs = 3;
    CHECK_EQ(schedule_check(&options, &err), STATUS_BAD_INPUT);
    options.warmup_epochs = 2;
    CHECK_EQ(schedule_check(&options, &err), STATUS_OK);
    CHECK_EQ(schedule_kind_named("cosine"), SCHEDULE_COSINE);
    CHECK_EQ(schedule_kind_named("cosin"), -1);
}

TEST(early_stopping_counts_as_the_seed_does)
{
    static const double metrics[] = {1.0, 0.9, 0.9, 0.95, 0.91, 0.8, 0.9, 0.85, 0.81};
    static const uint32_t counts[] = {0, 0, 0, 1, 2, 0, 1, 2, 3};
    struct early_stop stop = {.patience = 3};

    for (size_t i = 0; i < COUNT(metrics); i++) {
        CHECK_EQ(early_stop_update(&stop, metrics[i]), i == COUNT(metrics) - 1);
        CHECK_EQ(stop.count, counts[i]);
    }
    stop = (struct early_stop){.patience = 1, .maximize = true, .delta = 0.5};
    CHECK(!early_stop_update(&stop, 1.0));
    CHECK(early_stop_update(&stop, 1.4)); /* better, but by less than delta */
}

TEST_MAIN
