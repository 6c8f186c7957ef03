/* Options that were given and have no effect with the others: one table. What would be misunderstood is an error
 * instead, in options.c and options_optim.c. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "worker/options.h"
#include "worker/options_foreign.h"
#include "worker/options_table.h"

static bool is_schedule(const struct options *options, enum schedule_kind a, enum schedule_kind b)
{
    return options->schedule.kind == a || options->schedule.kind == b;
}

static bool has_step(const struct options *options)
{
    return is_schedule(options, SCHEDULE_STEP, SCHEDULE_STEP);
}

static bool has_gamma(const struct options *options)
{
    return is_schedule(options, SCHEDULE_STEP, SCHEDULE_PLATEAU);
}

static bool has_min(const struct options *options)
{
    return is_schedule(options, SCHEDULE_COSINE, SCHEDULE_PLATEAU);
}

static bool has_imagenet(const struct options *options)
{
    return is_schedule(options, SCHEDULE_IMAGENET, SCHEDULE_IMAGENET);
}

static bool has_cycle(const struct options *options)
{
    return is_schedule(options, SCHEDULE_ONECYCLE, SCHEDULE_ONECYCLE);
}

static bool has_plateau(const struct options *options)
{
    return is_schedule(options, SCHEDULE_PLATEAU, SCHEDULE_PLATEAU);
}

static bool warms_up(const struct options *options)
{
    return options->schedule.warmup_epochs > 0;
}

static bool stops_early(const struct options *options)
{
    return options->early_stop_metric != NULL;
}

static bool has_momentum(const struct options *options)
{
    return options->momentum > 0;
}

static bool has_dir(const struct options *options)
{
    return options->checkpoint_dir != NULL;
}

static bool has_half(const struct options *options)
{
    return options->amp.level > 0;
}

static bool is_fp32(const struct options *options)
{
    return options->amp.level == 0;
}

static bool has_dynamic_scale(const struct options *options)
{
    return options->amp.scaler.is_dynamic;
}

static bool fetches(const struct options *options)
{
    return options->fetch != NULL;
}

static bool may_time(const struct options *options)
{
    return !options->deterministic && strcmp(options->device, "cpu") != 0;
}

static bool trains(const struct options *options)
{
    return !options->evaluate;
}

static const char several[] = "a job of several ranks";

/* works: NULL: with several ranks */
static const struct idle {
    const char *name;
    bool (*works)(const struct options *options);
    const char *needs;
} idle[] = {
    {"lr-step-epochs", has_step, "--lr-schedule step"},
    {"lr-gamma", has_gamma, "--lr-schedule step or plateau"},
    {"min-lr", has_min, "--lr-schedule cosine or plateau"},
    {"warmup-from-zero", warms_up, "--warmup-epochs N"},
    {"imagenet-as-apex", has_imagenet, "--lr-schedule imagenet"},
    {"onecycle-div", has_cycle, "--lr-schedule onecycle"},
    {"onecycle-final-div", has_cycle, "--lr-schedule onecycle"},
    {"onecycle-pct-start", has_cycle, "--lr-schedule onecycle"},
    {"onecycle-three-phase", has_cycle, "--lr-schedule onecycle"},
    {"onecycle-keep-momentum", has_cycle, "--lr-schedule onecycle"},
    {"plateau-metric", has_plateau, "--lr-schedule plateau"},
    {"plateau-patience", has_plateau, "--lr-schedule plateau"},
    {"plateau-cooldown", has_plateau, "--lr-schedule plateau"},
    {"plateau-threshold", has_plateau, "--lr-schedule plateau"},
    {"plateau-threshold-absolute", has_plateau, "--lr-schedule plateau"},
    {"early-stop-patience", stops_early, "--early-stop METRIC"},
    {"early-stop-delta", stops_early, "--early-stop METRIC"},
    {"dampening", has_momentum, "--momentum X"},
    {"checkpoint-keep", has_dir, "--checkpoint-dir DIR"},
    {"best", has_dir, "--checkpoint-dir DIR"},
    {"take-over", has_dir, "--checkpoint-dir DIR"},
    {"from-start-if-damaged", has_dir, "--checkpoint-dir DIR"},
    {"low-type", has_half, "--opt-level O1, O2 or O3"},
    {"tf32", is_fp32, "--opt-level O0"},
    {"max-skipped-steps", has_dynamic_scale, "--loss-scale dynamic"},
    {"min-loss-scale", has_dynamic_scale, "--loss-scale dynamic"},
    {"max-loss-scale", has_dynamic_scale, "--loss-scale dynamic"},
    {"mirror", fetches, "--fetch WHAT"},
    {"fetch-timeout", fetches, "--fetch WHAT"},
    {"tune-seconds", may_time, "a GPU, and no --deterministic"},
    {"epochs", trains, "a training, and --evaluate is none"},
    {"max-steps", trains, "a training, and --evaluate is none"},
    {"lr", trains, "a training, and --evaluate is none"},
    {"momentum", trains, "a training, and --evaluate is none"},
    {"weight-decay", trains, "a training, and --evaluate is none"},
    {"lr-schedule", trains, "a training, and --evaluate is none"},
    {"checkpoint-every", trains, "a training, and --evaluate is none"},
    {"tb-histograms", trains, "a training, and --evaluate is none"},
    {"tb-images", trains, "a training, and --evaluate is none"},
    {"trace-steps", trains, "a training, and --evaluate is none"},
    {"loss-log", trains, "a training, and --evaluate is none"},
    {"sample-log", trains, "a training, and --evaluate is none"},
    {"allreduce-always-fp32", NULL, several},
    {"predivide-factor", NULL, several},
    {"delay-allreduce", NULL, several},
    {"bucket-cap-mb", NULL, several},
    {"nccl-max-ctas", NULL, several},
    {"comm", NULL, several},
    {"sync-bn", NULL, several},
    {"checkpoint-copies", NULL, several},
};

static bool is_given(const struct options *options, const char *name)
{
    size_t row = 0;

    while (row < options_table.row_count && strcmp(options_table.rows[row].name, name) != 0)
        row++;
    assert(row < options_table.row_count); /* the table names an option that exists */
    return options->is_given[row];
}

static bool next_foreign(const struct options *options, uint32_t world, uint32_t *at,
                         char text[OPTIONS_IDLE_BYTES])
{
    const uint32_t count = sizeof idle / sizeof idle[0];
    uint32_t further = *at - count;
    const bool is_one = options_next_foreign(options, world, &further, text);

    *at = count + further;
    return is_one;
}

bool options_next_idle(const struct options *options, uint32_t world, uint32_t *at,
                       char text[OPTIONS_IDLE_BYTES])
{
    for (; *at < sizeof idle / sizeof idle[0]; ++*at) {
        const struct idle *row = &idle[*at];
        const bool works = row->works != NULL ? row->works(options) : world > 1;

        if (!is_given(options, row->name) || works)
            continue;
        (void)snprintf(text, OPTIONS_IDLE_BYTES, "--%s has no effect here: it needs %s", row->name,
                       row->needs);
        ++*at;
        return true;
    }
    return next_foreign(options, world, at, text);
}
