/* What rank 0 writes during training: --metrics, the file of DDP_METRICS, --tensorboard. None of it
 * ends a training that has begun: the first failure of a writer is a warning, and the writer
 * continues when it can. */
#include "worker/train/internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "worker/metrics/metrics.h"
#include "worker/metrics/histogram.h"
#include "worker/metrics/picture_png.h"
#include "worker/net/state.h"

#define QUIET_US 10000000u /* after this long without a written step, the next one is written */

enum { LINE_FILES = 2 };

/* A writer's name in messages, and whether its failure was told. */
struct writer {
    const char *option, *path;
    bool has_failed;
    uint32_t failed_step; /* of the newest failure */
};

struct train_metrics {
    struct line_file lines[LINE_FILES];
    struct writer line_writers[LINE_FILES];
    uint32_t line_count;
    struct board *board; /* NULL: none */
    struct writer board_writer;
    uint64_t told_us;      /* when a step was written last, mono_us(); 0: none yet */
    uint64_t epoch_us;     /* when the epoch began */
    uint32_t images_epoch; /* whose images were written last, from 1; 0: none yet */
    int64_t saved_step;    /* the checkpoint that was written last */
};

static uint64_t wall_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Told when it begins to fail, and when it no longer does. */
static void tell(const struct train *train, struct writer *writer, enum status status,
                 const struct err *why)
{
    const bool failed = status != STATUS_OK;

    if (failed && !writer->has_failed)
        log_line(LOG_WARNING, train_log_about(train),
                 "%s %s: %s; training goes on without it, from step %u", writer->option,
                 writer->path, why->text, train->state.step);
    if (failed)
        writer->failed_step = train->state.step;
    else if (writer->has_failed && train->state.step == writer->failed_step)
        return; /* a shorter record may fit into what is left of a full disk */
    if (!failed && writer->has_failed)
        log_line(LOG_INFO, train_log_about(train), "%s %s: written again, from step %u",
                 writer->option, writer->path, train->state.step);
    writer->has_failed = failed;
}

static void write_line(struct train *train, const struct metrics_line *line)
{
    struct train_metrics *metrics = train->metrics;

    for (uint32_t i = 0; i < metrics->line_count; i++) {
        struct err why = {.text = ""};
        const enum status status = line_file_write(&metrics->lines[i], line, &why);

        tell(train, &metrics->line_writers[i], status, &why);
    }
}

static void write_values(struct train *train, uint32_t step, const struct event_value *values,
                         size_t count)
{
    struct train_metrics *metrics = train->metrics;
    struct err why = {.text = ""};
    enum status status;

    if (metrics->board == NULL)
        return;
    status = board_write(metrics->board, step, values, count, &why);
    tell(train, &metrics->board_writer, status, &why);
}

/* -- opening -- */

static enum status open_lines(struct train *train, const char *option, const char *path,
                              bool *has_lines, struct err *err)
{
    struct train_metrics *metrics = train->metrics;
    const uint32_t i = metrics->line_count;
    struct err why = {.text = ""};
    bool has_some = false;
    enum status status;

    assert(i < LINE_FILES);
    status = line_file_open(&metrics->lines[i], path, &has_some, &why);
    if (status != STATUS_OK)
        return err_set(err, status, why.code, "%s %.120s: %.80s", option, path, why.text);
    metrics->line_writers[i] = (struct writer){.option = option, .path = path};
    metrics->line_count++;
    *has_lines = *has_lines || has_some;
    return STATUS_OK;
}

static enum status open_board(struct train *train, struct err *err)
{
    struct train_metrics *metrics = train->metrics;
    const struct board_options options = {
        .folder = train->options->tensorboard,
        .after_step = train->state.step,
        .is_apart = train->options->evaluate,
        .may_share = train->place->generation > 1,
    };
    const uint32_t channels = train->validation_set->shape.channels;
    struct err why = {.text = ""};
    enum status status;

    if (options.folder == NULL)
        return STATUS_OK;
    if (train->options->tb_images > 0 && channels != 1 && channels != 3)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--tb-images shows grey and RGB images: these have %u channels", channels);
    metrics->board_writer = (struct writer){.option = "--tensorboard", .path = options.folder};
    status = board_open(&metrics->board, &options, &why);
    if (status != STATUS_OK)
        return err_set(err, status, why.code, "--tensorboard %.80s: %.150s", options.folder,
                       why.text);
    write_values(train, train->state.step, NULL, 0); /* the file's head: readers see the start */
    return STATUS_OK;
}

/* The first lines of a generation. When a file is continued, its readers drop what it has of later
 * steps. */
static void write_start(struct train *train, bool has_lines)
{
    struct metrics_line line = {
        .kind = LINE_RESTART,
        .time_us = wall_us(),
        .epoch = train->state.epoch + 1,
        .step = train->state.step,
        .generation = train->place->generation,
        .world = train->place->world,
    };

    if (train->place->generation > 1)
        write_line(train, &line);
    line.kind = LINE_RESUME;
    if (train->is_resumed || train->place->generation > 1 || has_lines)
        write_line(train, &line);
}

enum status train_metrics_open(struct train *train, struct err *err)
{
    const char *given = getenv("DDP_METRICS");
    bool has_lines = false;
    enum status status = STATUS_OK;

    if (train->place->rank != 0 || train->options->profile_steps > 0)
        return STATUS_OK;
    train->metrics = calloc(1, sizeof *train->metrics);
    if (train->metrics == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for metrics");
    train->metrics->saved_step = train->saved_step;
    if (train->options->metrics != NULL)
        status = open_lines(train, "--metrics", train->options->metrics, &has_lines, err);
    if (status == STATUS_OK && given != NULL && given[0] != '\0') {
        struct err why = {.text = ""};

        if (open_lines(train, "DDP_METRICS", given, &has_lines, &why) != STATUS_OK)
            log_line(LOG_WARNING, train_log_about(train), "%s; training goes on without it",
                     why.text);
    }
    if (status == STATUS_OK)
        status = open_board(train, err);
    if (status == STATUS_OK && !train->options->evaluate)
        write_start(train, has_lines);
    return status;
}

void train_metrics_close(struct train *train)
{
    struct train_metrics *metrics = train->metrics;

    if (metrics == NULL)
        return;
    for (uint32_t i = 0; i < metrics->line_count; i++)
        append_close(&metrics->lines[i].file);
    board_close(&metrics->board);
    free(metrics);
    train->metrics = NULL;
}

/* -- what happens -- */

/* The checkpoint is written during later steps, so it may belong to the previous epoch. */
void train_metrics_checkpoint(struct train *train)
{
    const struct checkpoint_state *state = &train->state;
    const uint32_t step = (uint32_t)(train->saved_step > 0 ? train->saved_step : 0);
    const bool is_of_epoch = state->epoch == 0 || step + state->step_in_epoch > state->step;
    const struct metrics_line line = {
        .kind = LINE_CHECKPOINT,
        .time_us = wall_us(),
        .epoch = state->epoch + (is_of_epoch ? 1 : 0),
        .step = step,
    };

    if (train->metrics == NULL || train->metrics->saved_step == train->saved_step)
        return;
    train->metrics->saved_step = train->saved_step;
    write_line(train, &line);
}

static void board_step(struct train *train, const struct metrics_line *line)
{
    const struct event_value values[] = {
        {.tag = "Loss/train", .scalar = line->loss},
        {.tag = "Top1/train", .scalar = line->acc1},
        {.tag = "Top5/train", .scalar = line->acc5},
        {.tag = "Lr", .scalar = line->lr},
        {.tag = "Throughput/train", .scalar = line->images_per_s},
        {.tag = "Time/step", .scalar = line->step_ms},
        {.tag = "Time/data", .scalar = line->data_ms},
        {.tag = "Time/comm", .scalar = line->comm_ms},
        {.tag = "Time/exposed", .scalar = line->exposed_ms},
        {.tag = "LossScale", .scalar = line->loss_scale},
    };

    write_values(train, line->step, values, sizeof values / sizeof values[0]);
}

void train_metrics_step(struct train *train, const struct train_report *report, bool is_due)
{
    const struct progress *progress = &train->progress;
    const struct net_result *epoch = &progress->epoch;
    const struct progress_means means = progress_means(progress);
    const struct metrics_line line = {
        .kind = LINE_STEP,
        .time_us = wall_us(),
        .epoch = report->pending->epoch,
        .step = report->pending->step,
        .loss = report->loss,
        .acc1 = progress_percent(epoch->top1, epoch->images),
        .acc5 = progress_percent(epoch->top5, epoch->images),
        .images_per_s = progress->images_per_s,
        .lr = report->pending->lr,
        .step_ms = means.step_ms,
        .data_ms = means.data_ms,
        .comm_ms = means.comm_ms,
        .exposed_ms = means.exposed_ms,
        .loss_scale = (double)report->loss_scale,
        .skipped = train->options->amp.scaler.is_dynamic
                       ? report->pending->step - train->state.applied
                       : 0,
    };

    if (train->metrics == NULL)
        return;
    train_metrics_checkpoint(train);
    /* The first step of a run is always written: when steps are repeated, TensorBoard's server
     * drops the older points when it sees a new point, not at the START record. */
    if (!is_due && train->metrics->told_us > 0 && mono_us() - train->metrics->told_us < QUIET_US)
        return;
    train->metrics->told_us = mono_us();
    write_line(train, &line);
    board_step(train, &line);
}

void train_metrics_validation(struct train *train, const struct net_result *sums, uint64_t us)
{
    const struct metrics_line line = {
        .kind = LINE_VALIDATION,
        .time_us = wall_us(),
        .epoch = train->state.epoch + 1,
        .step = train->state.step,
        .loss = sums->images > 0 ? sums->loss_sum / sums->images : NAN,
        .acc1 = progress_percent(sums->top1, sums->images),
        .acc5 = progress_percent(sums->top5, sums->images),
        .images = sums->images,
        .seconds = (double)us * 1e-6,
    };
    const struct event_value values[] = {
        {.tag = "Loss/val", .scalar = line.loss},
        {.tag = "Top1/val", .scalar = line.acc1},
        {.tag = "Top5/val", .scalar = line.acc5},
    };

    if (train->metrics == NULL)
        return;
    write_line(train, &line);
    write_values(train, line.step, values, sizeof values / sizeof values[0]);
}

/* -- epochs -- */

void train_metrics_epoch_begin(struct train *train)
{
    if (train->metrics != NULL)
        train->metrics->epoch_us = mono_us();
}

static enum status write_image(struct train *train, const uint8_t *pixels, uint32_t index,
                               struct err *err)
{
    const struct dataset_shape *shape = &train->train_set->shape;
    struct buf png = {0};
    struct event_image image = {shape->height, shape->width, shape->channels, NULL, 0};
    struct event_value value = {.image = &image};
    char tag[32];
    enum status status =
        metrics_png(&png, pixels, shape->height, shape->width, shape->channels, err);

    if (status == STATUS_OK) {
        image.png = png.bytes;
        image.byte_count = png.byte_count;
        (void)snprintf(tag, sizeof tag, "Images/train/%u", index);
        value.tag = tag;
        write_values(train, train->state.step + 1, &value, 1);
    }
    buf_free(&png);
    return status;
}

enum status train_metrics_batch(struct train *train, const struct loader_batch *batch,
                                struct err *err)
{
    struct train_metrics *metrics = train->metrics;
    enum status status = STATUS_OK;

    if (metrics == NULL || metrics->board == NULL || metrics->images_epoch > train->state.epoch)
        return STATUS_OK;
    metrics->images_epoch = train->state.epoch + 1;
    for (uint32_t i = 0; status == STATUS_OK && i < batch->n && i < train->options->tb_images; i++)
        status =
            write_image(train, batch->images + i * source_image_bytes(train->train_set), i, err);
    return status;
}

/* Divided by the loss scale. */
static void unscale(float *values, size_t count, float scale)
{
    for (size_t i = 0; i < count; i++)
        values[i] /= scale;
}

/* One event for each, since together they may be many megabytes. */
static enum status write_histogram(struct train *train, struct histogram *histogram, uint32_t index,
                                   bool of_gradient, float *values, struct err *err)
{
    const struct net_tensor *tensor = net_tensor(train->net, index);
    struct event_histogram event;
    struct event_value value = {.histogram = &event};
    char tag[300];
    enum status status = of_gradient ? net_grad_read(train->net, index, values, err)
                                     : net_tensor_read(train->net, index, values, err);

    if (status != STATUS_OK)
        return status;
    if (of_gradient)
        unscale(values, tensor->count, net_scaler(train->net).scale);
    histogram_init(histogram);
    histogram_count(histogram, values, tensor->count);
    event = histogram_event(histogram);
    (void)snprintf(tag, sizeof tag, "%s/%s", of_gradient ? "Gradients" : "Parameters",
                   tensor->name);
    value.tag = tag;
    write_values(train, train->state.step, &value, 1);
    return STATUS_OK;
}

static enum status write_histograms(struct train *train, struct err *err)
{
    const uint32_t count = net_tensor_count(train->net);
    struct histogram *histogram = malloc(sizeof *histogram);
    size_t largest = 1;
    float *values;
    enum status status = STATUS_OK;

    for (uint32_t i = 0; i < count; i++)
        if (net_tensor(train->net, i)->count > largest)
            largest = net_tensor(train->net, i)->count;
    values = malloc(largest * sizeof *values);
    if (values == NULL || histogram == NULL)
        status = err_set(err, STATUS_MEMORY, 0, "no memory for --tb-histograms");
    for (uint32_t i = 0; status == STATUS_OK && i < count; i++) {
        status = write_histogram(train, histogram, i, false, values, err);
        if (status == STATUS_OK && net_tensor(train->net, i)->trainable)
            status = write_histogram(train, histogram, i, true, values, err);
    }
    free(values);
    free(histogram);
    return status;
}

enum status train_metrics_epoch_end(struct train *train, struct err *err)
{
    const struct progress *progress = &train->progress;
    const struct net_result *epoch = &progress->epoch;
    struct metrics_line line = {
        .kind = LINE_EPOCH,
        .unreadable = train->unreadable.training,
        .time_us = wall_us(),
        .epoch = train->state.epoch + 1,
        .step = train->state.step,
        .loss = progress->finite_images > 0 ? epoch->loss_sum / progress->finite_images : NAN,
        .acc1 = progress_percent(epoch->top1, epoch->images),
        .acc5 = progress_percent(epoch->top5, epoch->images),
    };

    if (train->metrics == NULL || epoch->images == 0)
        return STATUS_OK;
    line.seconds = (double)(mono_us() - train->metrics->epoch_us) * 1e-6;
    line.images_per_s =
        line.seconds > 0.0 ? (double)epoch->images * train->place->world / line.seconds : NAN;
    write_line(train, &line);
    return train->metrics->board != NULL && train->options->tb_histograms
               ? write_histograms(train, err)
               : STATUS_OK;
}
