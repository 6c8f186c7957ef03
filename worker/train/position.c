/* The position in the data, and what follows from it: the order of the remaining images, the steps of the epoch
 * and of the training, the learning rate.
 *
 * The order of all images of an epoch depends only on seed and epoch. The ranks of a world take images from it in
 * turn, so after each step a known part of it has been used. A checkpoint records that part: state.parts lists the
 * steps that other worlds (or batch sizes) did in this epoch; the remaining steps of step_in_epoch were done by
 * state.world. When the world changes, its steps become one more part, and the new world shares the rest of the
 * order. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "worker/train/internal.h"

static uint32_t steps_of_parts(const struct checkpoint_state *state)
{
    uint32_t steps = 0;

    for (uint32_t i = 0; i < state->part_count; i++)
        steps += state->parts[i].steps;
    assert(steps <= state->step_in_epoch);
    return steps;
}

uint32_t train_steps_before(const struct train *train)
{
    return steps_of_parts(&train->state);
}

enum status train_begin_order(struct train *train, struct err *err)
{
    const struct checkpoint_state *state = &train->state;
    const size_t whole = train_group_images(train);
    enum status status;

    sampler_set_epoch(&train->sampler, state->epoch);
    status = sampler_skip(&train->sampler, state->parts, state->part_count, err);
    if (status != STATUS_OK)
        return status;
    train->epoch_steps =
        train_steps_before(train) + (uint32_t)((train->sampler.count + whole - 1) / whole);
    if (state->step_in_epoch > train->epoch_steps)
        return err_set(err, STATUS_BAD_INPUT, 0, "epoch %u has %u steps, but %u of them are done",
                       state->epoch + 1, train->epoch_steps, state->step_in_epoch);
    return STATUS_OK;
}

size_t train_group_images(const struct train *train)
{
    return (size_t)train->options->batch * train->options->accumulation_steps;
}

/* The first image of the step to come, among those of this rank. */
static size_t first_image(const struct train *train)
{
    return (train->state.step_in_epoch - train_steps_before(train)) * train_group_images(train);
}

size_t train_step_images(const struct train *train)
{
    const size_t whole = train_group_images(train);
    const size_t left = train->sampler.count - first_image(train);

    assert(train->state.step_in_epoch < train->epoch_steps);
    return left < whole ? left : whole;
}

uint64_t train_total_steps(const struct train *train)
{
    const struct checkpoint_state *state = &train->state;
    const uint32_t max = train->options->max_steps;
    uint64_t steps = state->step - state->step_in_epoch; /* before this epoch */

    if (state->epoch < train->options->epochs)
        steps += train->epoch_steps +
                 (uint64_t)(train->options->epochs - state->epoch - 1) * train->steps_per_epoch;
    return max > 0 && max < steps ? max : steps;
}

/* A schedule counts the steps of an epoch that this world does alone. In an epoch that others have
 * begun, it is placed so that the same number of steps is left. */
struct schedule_now train_rate(const struct train *train)
{
    const struct checkpoint_state *state = &train->state;
    const uint32_t left = train->epoch_steps - state->step_in_epoch, all = train->steps_per_epoch;
    const uint32_t in_epoch = left < all ? all - left : 0;
    const uint64_t done = (uint64_t)state->epoch * all + in_epoch;
    const uint64_t skipped = state->step - state->applied;

    return schedule_at(&train->schedule, &state->schedule, done > skipped ? done - skipped : 0,
                       state->epoch, in_epoch);
}

/* -- the rate of this world -- */

uint64_t train_world_images(const struct checkpoint_state *state)
{
    return (uint64_t)state->world * state->batch * state->accumulation_steps;
}

static double rate_factor(const struct train *train, const struct checkpoint_state *world)
{
    return elastic_lr_factor(train->options->elastic_lr_rule, train->state.base_images,
                             train_world_images(world));
}

void train_set_base_rate(struct train *train)
{
    const struct options *options = train->options;
    double rate = (double)options->lr;

    if (options->scale_lr)
        rate *= (double)train_group_images(train) * train->place->world / 256.0;
    if (train->state.world > 0) /* else it is not known yet what is gone on from */
        rate *= rate_factor(train, &train->state);
    train->schedule.base_lr = rate;
    if (train->state.schedule_epochs > 0)
        train->schedule.epochs = train->state.schedule_epochs;
}

/* A schedule that goes over all epochs keeps those with which it began, as PyTorch's does after
 * load_state_dict: over others the rate would jump. */
static void take_schedule_epochs(struct train *train, const struct checkpoint_state *from)
{
    const enum schedule_kind kind = train->schedule.kind;
    const uint32_t began = from->schedule_epochs, now = train->options->epochs;

    if ((kind != SCHEDULE_ONECYCLE && kind != SCHEDULE_COSINE) || began == 0 ||
        strcmp(from->schedule_kind, train->state.schedule_kind) != 0)
        return;
    train->state.schedule_epochs = began;
    if (began == now || train->options->evaluate)
        return;
    log_line(LOG_WARNING, train_log_about(train),
             "--lr-schedule %s goes over the %u epochs with which it began, so that the rate does "
             "not jump: --epochs %u %s; for a new schedule begin with --pretrained FILE, this "
             "checkpoint's .safetensors",
             from->schedule_kind, began, now,
             now > began ? "trains the others at its last rate" : "ends before its last rate");
}

/* A rate that the schedule computed from metrics was computed for another world. */
static void take_rate(struct train *train, const struct checkpoint_state *from)
{
    struct checkpoint_state *state = &train->state;

    state->base_images = from->base_images != 0 ? from->base_images : train_world_images(from);
    state->schedule.plateau_lr *= rate_factor(train, state) / rate_factor(train, from);
    train_set_base_rate(train);
}

/* -- a checkpoint's position -- */

static bool is_same_world(const struct checkpoint_state *a, const struct checkpoint_state *b)
{
    return a->world == b->world && a->batch == b->batch &&
           a->accumulation_steps == b->accumulation_steps;
}

static void say_change(const struct train *train, const struct checkpoint_state *from)
{
    const struct checkpoint_state *now = &train->state;

    log_line(LOG_WARNING, train_log_about(train),
             "the checkpoint is of %u ranks with batches of %u x %u, now there are %u with %u x "
             "%u: a step has %" PRIu64 " images instead of %" PRIu64
             "; the images that are left of epoch %u are shared anew; %s is %g",
             from->world, from->batch, from->accumulation_steps, now->world, now->batch,
             now->accumulation_steps, (uint64_t)now->world * now->batch * now->accumulation_steps,
             (uint64_t)from->world * from->batch * from->accumulation_steps, now->epoch + 1,
             train->options->scale_lr ? "the rate that --scale-lr makes of --lr"
             : train->options->elastic_lr_rule != ELASTIC_LR_KEEP
                 ? "the rate that --elastic-lr makes of --lr"
                 : "--lr, which does not depend on that,",
             train->schedule.base_lr);
}

static bool is_other(uint64_t there, uint64_t here)
{
    return there != 0 && there != here;
}

static void say_other_rules(const struct train *train, const struct checkpoint_state *from)
{
    if (is_other(from->image_rules, train->state.image_rules))
        log_line(LOG_WARNING, train_log_about(train),
                 "the images are other ones than those of the checkpoint's training: --image-size, "
                 "--resize, --mean or --std has changed");
    if (!train->options->evaluate && is_other(from->training_rules, train->state.training_rules))
        log_line(LOG_WARNING, train_log_about(train),
                 "the training goes on otherwise than it began: --augment, --crop-scale, "
                 "--crop-ratio, --dct-scaling, --cache, --shuffle-window or --data-parallel has "
                 "changed");
}

/* What `from` has done of its epoch, as parts; no new part if this world is the same. */
static enum status take_parts(struct checkpoint_state *state, const struct checkpoint_state *from,
                              struct err *err)
{
    const uint32_t own = from->step_in_epoch - steps_of_parts(from);

    memcpy(state->parts, from->parts, sizeof state->parts);
    state->part_count = from->part_count;
    if (is_same_world(state, from) || own == 0)
        return STATUS_OK;
    if (state->part_count == CHECKPOINT_PARTS_MAX)
        return err_set(err, STATUS_TOO_BIG, 0,
                       "the world has changed %u times within epoch %u, which is all that a "
                       "checkpoint can store: go on with the world of %u for the rest of it",
                       CHECKPOINT_PARTS_MAX, from->epoch + 1, from->world);
    state->parts[state->part_count++] =
        (struct sampler_part){from->world, from->batch, from->accumulation_steps, own};
    return STATUS_OK;
}

/* Files of older versions have no checksum, but were made by one world alone. */
static enum status check_unchecked(const struct train *train, const struct checkpoint_state *from,
                                   struct err *err)
{
    const uint64_t per_epoch = train->steps_per_epoch;

    if (!from->is_unchecked || !is_same_world(&train->state, from) ||
        from->epoch * per_epoch + from->step_in_epoch == from->step)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "step %u in all cannot be step %u of epoch %u, with %u steps an epoch",
                   from->step, from->step_in_epoch, from->epoch + 1, train->steps_per_epoch);
}

/* The number of threads decides the order of oneDNN's sums. */
static enum status check_threads(const struct train *train, const struct checkpoint_state *from,
                                 const char *path, struct err *err)
{
    const uint32_t now = train->state.threads;

    if (!train->options->deterministic || train->options->evaluate || from->threads == now ||
        from->threads == 0 || now == 0)
        return STATUS_OK;
    return err_set(
        err, STATUS_BAD_INPUT, 0,
        "%s: --deterministic: step %u was made with %u threads a rank, now there are %u, "
        "and the bits would differ: give --threads %u, or leave --deterministic out",
        path, from->step, from->threads, now, from->threads);
}

static enum status take(struct train *train, const struct checkpoint_state *from, struct err *err)
{
    struct checkpoint_state *state = &train->state;
    enum status status = take_parts(state, from, err);

    if (status != STATUS_OK)
        return status;
    train->is_resumed = true;
    state->epoch = from->epoch;
    state->step_in_epoch = from->step_in_epoch;
    state->step = from->step;
    state->has_momentum = from->has_momentum;
    state->loss_scale = from->loss_scale;
    state->unskipped = from->unskipped;
    state->skipped_in_a_row = from->skipped_in_a_row;
    state->applied = from->applied;
    state->schedule = from->schedule;
    take_schedule_epochs(train, from);
    take_rate(train, from);
    state->early_has_best = from->early_has_best;
    state->early_best = from->early_best;
    state->early_count = from->early_count;
    return STATUS_OK;
}

enum status train_take_position(struct train *train, const struct checkpoint_state *from,
                                const char *path, struct err *err)
{
    struct err why = {0};
    enum status status = check_threads(train, from, path, err);

    if (status != STATUS_OK)
        return status;
    status = take(train, from, &why);
    if (status == STATUS_OK && !train->options->evaluate) {
        status = check_unchecked(train, from, &why);
        if (status == STATUS_OK && (from->step < from->step_in_epoch || from->applied > from->step))
            status =
                err_set(&why, STATUS_BAD_INPUT, 0, "its counts of steps contradict one another");
        if (status == STATUS_OK)
            status = train_begin_order(train, &why);
    }
    if (status == STATUS_BAD_INPUT)
        return err_set(err, status, why.code, "%s: the checkpoint's state was changed: %s", path,
                       why.text);
    if (status != STATUS_OK)
        return err_set(err, status, why.code, "%s: %s", path, why.text);
    if (from->is_unchecked)
        log_line(LOG_INFO, train_log_about(train),
                 "%s: step %u is of a version that stored no checksum of the state", path,
                 from->step);
    if (!train->options->evaluate && !is_same_world(&train->state, from))
        say_change(train, from);
    say_other_rules(train, from);
    return STATUS_OK;
}

/* -- --sample-log -- */

void train_log_samples(struct train *train)
{
    const size_t first = first_image(train), count = train_step_images(train);
    FILE *log = train->sample_log;

    if (log == NULL)
        return;
    (void)fprintf(log, "%u %u", train->state.epoch + 1, train->state.step + 1);
    for (size_t i = first; i < first + count; i++)
        (void)fprintf(log, " %" PRId64, train->indices[i]);
    if (fprintf(log, "\n") >= 0 && fflush(log) == 0 && ferror(log) == 0)
        return;
    log_line(LOG_WARNING, train_log_about(train),
             "--sample-log %s: cannot write: %s; it ends before step %u, training goes on",
             train->options->sample_log, strerror(errno), train->state.step + 1);
    (void)fclose(log);
    train->sample_log = NULL;
}
