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

static bool has_step(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return is_schedule(options, SCHEDULE_STEP, SCHEDULE_STEP);
}

static bool has_gamma(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return is_schedule(options, SCHEDULE_STEP, SCHEDULE_PLATEAU);
}

static bool has_min(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return is_schedule(options, SCHEDULE_COSINE, SCHEDULE_PLATEAU);
}

static bool has_imagenet(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return is_schedule(options, SCHEDULE_IMAGENET, SCHEDULE_IMAGENET);
}

static bool has_cycle(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return is_schedule(options, SCHEDULE_ONECYCLE, SCHEDULE_ONECYCLE);
}

static bool has_plateau(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return is_schedule(options, SCHEDULE_PLATEAU, SCHEDULE_PLATEAU);
}

static bool warms_up(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return options->schedule.warmup_epochs > 0;
}

static bool stops_early(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return options->early_stop_metric != NULL;
}

static bool has_momentum(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return options->momentum > 0;
}

static bool has_dir(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return options->checkpoint_dir != NULL;
}

static bool has_half(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return options->amp.level > 0;
}

static bool is_fp32(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return options->amp.level == 0;
}

static bool has_dynamic_scale(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return options->amp.scaler.is_dynamic;
}

static bool fetches(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return options->fetch != NULL;
}

static bool may_time(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return !options->deterministic && strcmp(options->device, "cpu") != 0;
}

static bool trains(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return !options->evaluate;
}

static bool fits(const struct options *options, const struct options_facts *facts)
{
    return trains(options, facts) && options->profile_steps == 0;
}

/* That of cifar also says how large images are. */
static bool shapes_images(const struct options *options, const struct options_facts *facts)
{
    return trains(options, facts) || options->images.augment == AUGMENT_CIFAR;
}

static bool measures(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return options->profile_steps == 0;
}

static bool draws_weights(const struct options *options, const struct options_facts *facts)
{
    (void)facts;
    return options->pretrained == NULL;
}

static bool has_ranks(const struct options *options, const struct options_facts *facts)
{
    (void)options;
    return facts->world > 1;
}

static bool is_on_gpu(const struct options *options, const struct options_facts *facts)
{
    (void)options;
    return facts->is_on_gpu;
}

static bool is_on_cpu(const struct options *options, const struct options_facts *facts)
{
    (void)options;
    return !facts->is_on_gpu;
}

static bool has_pictures(const struct options *options, const struct options_facts *facts)
{
    (void)options;
    return facts->has_pictures;
}

static bool has_sized_images(const struct options *options, const struct options_facts *facts)
{
    return facts->has_pictures || options->dummy;
}

static bool has_folder(const struct options *options, const struct options_facts *facts)
{
    (void)options;
    return facts->has_pictures && !facts->has_shards;
}

static bool has_shards(const struct options *options, const struct options_facts *facts)
{
    (void)options;
    return facts->has_shards;
}

static bool crops_resized(const struct options *options, const struct options_facts *facts)
{
    return facts->has_pictures && (options->images.augment == AUGMENT_USUAL ||
                                   options->images.augment == AUGMENT_IMAGENET);
}

/* Of an option with several rows the first that says something is told. */
static const struct idle {
    const char *name;
    bool (*works)(const struct options *options, const struct options_facts *facts);
    const char *needs;
} idle[] = {
    {"epochs", fits, "a training, and --evaluate and --profile are none"},
    {"max-steps", fits, "a training, and --evaluate and --profile are none"},
    {"lr-schedule", fits, "a training, and --evaluate and --profile are none"},
    {"warmup-epochs", fits, "a training, and --evaluate and --profile are none"},
    {"early-stop", fits, "a training, and --evaluate and --profile are none"},
    {"lr", trains, "a training, and --evaluate is none"},
    {"momentum", trains, "a training, and --evaluate is none"},
    {"dampening", trains, "a training, and --evaluate is none"},
    {"nesterov", trains, "a training, and --evaluate is none"},
    {"weight-decay", trains, "a training, and --evaluate is none"},
    {"optimizer", trains, "a training, and --evaluate is none"},
    {"betas", trains, "a training, and --evaluate is none"},
    {"eps", trains, "a training, and --evaluate is none"},
    {"trust-coefficient", trains, "a training, and --evaluate is none"},
    {"lookahead", trains, "a training, and --evaluate is none"},
    {"clip-grad-norm", trains, "a training, and --evaluate is none"},
    {"clip-grad-value", trains, "a training, and --evaluate is none"},
    {"accumulation-steps", trains, "a training, and --evaluate is none"},
    {"label-smoothing", trains, "a training, and --evaluate is none"},
    {"scale-lr", trains, "a training, and --evaluate is none"},
    {"elastic-lr", trains, "a training, and --evaluate is none"},
    {"augment", shapes_images, "a training, and --evaluate is none"},
    {"metrics", measures, "a training or a validation, and --profile is none"},
    {"tensorboard", measures, "a training or a validation, and --profile is none"},
    {"crop-scale", trains, "a training, and --evaluate is none"},
    {"crop-ratio", trains, "a training, and --evaluate is none"},
    {"shuffle-window", trains, "a training, and --evaluate is none"},
    {"checkpoint-every", trains, "a training, and --evaluate is none"},
    {"checkpoint-keep", trains, "a training, and --evaluate is none"},
    {"checkpoint-copies", trains, "a training, and --evaluate is none"},
    {"take-over", trains, "a training, and --evaluate is none"},
    {"from-start-if-damaged", trains, "a training, and --evaluate is none"},
    {"best", trains, "a training, and --evaluate is none"},
    {"loss-scale", trains, "a training, and --evaluate is none"},
    {"init-loss-scale", trains, "a training, and --evaluate is none"},
    {"sync-bn", trains, "a training, and --evaluate is none"},
    {"tb-histograms", trains, "a training, and --evaluate is none"},
    {"tb-images", trains, "a training, and --evaluate is none"},
    {"trace-steps", trains, "a training, and --evaluate is none"},
    {"loss-log", trains, "a training, and --evaluate is none"},
    {"sample-log", trains, "a training, and --evaluate is none"},
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
    {"keep-batchnorm-fp32", has_half, "--opt-level O1, O2 or O3"},
    {"allreduce-always-fp32", has_half, "--opt-level O1, O2 or O3"},
    {"tf32", is_fp32, "--opt-level O0"},
    {"tf32", is_on_gpu, "a GPU"},
    {"init-loss-scale", has_dynamic_scale, "--loss-scale dynamic"},
    {"max-skipped-steps", has_dynamic_scale, "--loss-scale dynamic"},
    {"min-loss-scale", has_dynamic_scale, "--loss-scale dynamic"},
    {"max-loss-scale", has_dynamic_scale, "--loss-scale dynamic"},
    {"mirror", fetches, "--fetch WHAT"},
    {"fetch-timeout", fetches, "--fetch WHAT"},
    {"tune-seconds", may_time, "a GPU, and no --deterministic"},
    {"tune-seconds", is_on_gpu, "a GPU, and no --deterministic"},
    {"threads", is_on_cpu, "--device cpu"},
    {"zero-init-residual", draws_weights, "weights that are drawn, and --pretrained has them all"},
    {"image-size", has_sized_images, "pictures in folders or shards, or --dummy"},
    {"resize", has_pictures, "pictures in folders or shards"},
    {"dct-scaling", has_pictures, "pictures in folders or shards"},
    {"strict", has_pictures, "pictures in folders or shards"},
    {"crop-scale", crops_resized, "pictures with --augment imagenet, their default"},
    {"crop-ratio", crops_resized, "pictures with --augment imagenet, their default"},
    {"allow-empty", has_folder, "pictures in folders"},
    {"shuffle-window", has_shards, "tar shards"},
    {"allreduce-always-fp32", has_ranks, "a job of several ranks"},
    {"predivide-factor", has_ranks, "a job of several ranks"},
    {"delay-allreduce", has_ranks, "a job of several ranks"},
    {"bucket-cap-mb", has_ranks, "a job of several ranks"},
    {"nccl-max-ctas", has_ranks, "a job of several ranks"},
    {"comm", has_ranks, "a job of several ranks"},
    {"sync-bn", has_ranks, "a job of several ranks"},
    {"checkpoint-copies", has_ranks, "a job of several ranks"},
    {"nccl-max-ctas", is_on_gpu, "a GPU"},
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

static bool is_idle(const struct options *options, const struct options_facts *facts, uint32_t row)
{
    return is_given(options, idle[row].name) && !idle[row].works(options, facts);
}

static bool was_told(const struct options *options, const struct options_facts *facts, uint32_t row)
{
    for (uint32_t i = 0; i < row; i++)
        if (strcmp(idle[i].name, idle[row].name) == 0 && is_idle(options, facts, i))
            return true;
    return false;
}

bool options_next_idle(const struct options *options, const struct options_facts *facts,
                       uint32_t *at, char text[OPTIONS_IDLE_BYTES])
{
    while (*at < sizeof idle / sizeof idle[0]) {
        const uint32_t row = (*at)++;

        if (!is_idle(options, facts, row) || was_told(options, facts, row))
            continue;
        (void)snprintf(text, OPTIONS_IDLE_BYTES, "--%s has no effect here: it needs %s",
                       idle[row].name, idle[row].needs);
        return true;
    }
    return next_foreign(options, facts->world, at, text);
}
