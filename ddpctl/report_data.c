#include "ddpctl/report_data.h"

#include <math.h>
#include <string.h>

/* The curve of a field, for lines of a validation and for other lines. */
static const struct {
    const char *name;
    bool of_validation;
    enum report_curve curve;
} fields[] = {
    {"loss", false, CURVE_LOSS},         {"loss", true, CURVE_LOSS_VAL},
    {"acc1", false, CURVE_ACC1},         {"acc1", true, CURVE_ACC1_VAL},
    {"acc5", true, CURVE_ACC5_VAL},      {"lr", false, CURVE_LR},
    {"images_per_s", false, CURVE_RATE}, {"step_ms", false, CURVE_STEP_MS},
    {"data_ms", false, CURVE_DATA_MS},   {"exposed_ms", false, CURVE_EXPOSED_MS},
    {"loss_scale", false, CURVE_SCALE},
};

/* Training goes on after `step`. Drops what was written about later steps: they are done again. */
static void begin_after(struct report_data *data, double step)
{
    for (uint32_t i = 0; i < CURVE_COUNT; i++)
        series_drop_after(&data->curves[i], step);
    while (data->checkpoint_count > 0 && data->checkpoints[data->checkpoint_count - 1] > step)
        data->checkpoint_count--;
    while (data->epoch_count > 0 && data->epochs[data->epoch_count - 1].step > step)
        data->epoch_count--;
    if (data->is_fresh && data->restart_count > 0)
        data->restarts[data->restart_count - 1].step = step;
    data->is_fresh = false;
    data->step = step;
}

static void begin_generation(struct report_data *data, uint32_t generation)
{
    if (generation > 1 && data->restart_count == REPORT_MARKS_MAX)
        memmove(data->restarts, data->restarts + 1,
                --data->restart_count * sizeof data->restarts[0]);
    if (generation > 1)
        data->restarts[data->restart_count++] = (struct report_restart){generation, (double)NAN};
    data->is_fresh = generation > 1;
    data->generation = generation;
}

static void add_checkpoint(struct report_data *data, double step)
{
    if (data->checkpoint_count > 0 && data->checkpoints[data->checkpoint_count - 1] >= step)
        return;
    if (data->checkpoint_count == REPORT_MARKS_MAX) {
        for (uint32_t i = 0; i < REPORT_MARKS_MAX / 2; i++)
            data->checkpoints[i] = data->checkpoints[2 * i + 1];
        data->checkpoint_count = REPORT_MARKS_MAX / 2;
    }
    data->checkpoints[data->checkpoint_count++] = step;
}

/* The row of that epoch. The end of an epoch and its validation share a row. */
static struct report_epoch *epoch_row(struct report_data *data, double epoch, double step)
{
    struct report_epoch *row;

    if (data->epoch_count > 0 && data->epochs[data->epoch_count - 1].epoch == epoch)
        return &data->epochs[data->epoch_count - 1];
    if (data->epoch_count == REPORT_EPOCHS_MAX)
        memmove(data->epochs, data->epochs + 1, --data->epoch_count * sizeof data->epochs[0]);
    row = &data->epochs[data->epoch_count++];
    *row = (struct report_epoch){epoch, step, (double)NAN, (double)NAN, (double)NAN, (double)NAN};
    data->epochs_seen++;
    return row;
}

static void add_epoch(struct report_data *data, const struct metric_line *line, double step,
                      bool is_validation)
{
    struct report_epoch *row = epoch_row(data, metric_number(line->object, "epoch"), step);
    double loss = metric_number(line->object, "loss");

    row->step = step;
    if (!is_validation) {
        row->loss = loss;
        return;
    }
    row->val_loss = loss;
    row->acc1 = metric_number(line->object, "acc1");
    row->acc5 = metric_number(line->object, "acc5");
}

static void add_points(struct report_data *data, const struct metric_line *line, double step,
                       bool is_validation)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].of_validation == is_validation &&
            !series_add(&data->curves[fields[i].curve], step,
                        metric_number(line->object, fields[i].name)))
            data->failed = true;
}

void report_data_take(struct report_data *data, const struct metric_line *line)
{
    const char *kind = metric_text(line->object, "kind");
    double step = metric_number(line->object, "step");
    bool is_validation = kind != NULL && strcmp(kind, "validation") == 0;

    if (line->generation != data->generation)
        begin_generation(data, line->generation);
    if (kind != NULL && strcmp(kind, "restart") == 0)
        return;
    if (isnan(step)) /* the program does not count steps */
        step = is_validation ? data->step : data->step + 1;
    if (kind != NULL && strcmp(kind, "resume") == 0) {
        begin_after(data, step);
        return;
    }
    if (data->is_fresh)
        begin_after(data, kind == NULL || strcmp(kind, "step") == 0 ? step - 1 : step);
    data->step = step;
    if (kind != NULL && strcmp(kind, "checkpoint") == 0)
        add_checkpoint(data, step);
    else if (is_validation || (kind != NULL && strcmp(kind, "epoch") == 0))
        add_epoch(data, line, step, is_validation);
    if (is_validation || kind == NULL || strcmp(kind, "step") == 0)
        add_points(data, line, step, is_validation);
}

void report_data_free(struct report_data *data)
{
    for (uint32_t i = 0; i < CURVE_COUNT; i++)
        series_free(&data->curves[i]);
}
