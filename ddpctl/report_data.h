/* The data of a job's report: curves, restarts, checkpoints, epochs. Lines of steps that a later
 * generation repeats are dropped. Pure, apart from the heap. */
#ifndef DDPCTL_REPORT_DATA_H
#define DDPCTL_REPORT_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "ddpctl/metric_lines.h"
#include "ddpctl/series.h"

enum report_curve {
    CURVE_LOSS,
    CURVE_LOSS_VAL,
    CURVE_ACC1,
    CURVE_ACC1_VAL,
    CURVE_ACC5_VAL,
    CURVE_LR,
    CURVE_RATE,
    CURVE_STEP_MS,
    CURVE_DATA_MS,
    CURVE_EXPOSED_MS,
    CURVE_SCALE,
    CURVE_COUNT
};

enum { REPORT_MARKS_MAX = 512, REPORT_EPOCHS_MAX = 256, REPORT_PROBLEMS_MAX = 8 };

struct report_restart {
    uint32_t generation;
    double step; /* the step after which the generation began; NaN: it wrote no step */
};
/* One validation, or the end of an epoch; NaN: not known. */
struct report_epoch {
    double epoch, step, loss, val_loss, acc1, acc5;
};
struct report_data {
    struct series curves[CURVE_COUNT];
    struct report_restart restarts[REPORT_MARKS_MAX]; /* the newest restarts */
    uint32_t restart_count;
    double checkpoints[REPORT_MARKS_MAX]; /* their steps; when full, every second one is dropped */
    uint32_t checkpoint_count;
    struct report_epoch epochs[REPORT_EPOCHS_MAX]; /* the newest epochs */
    uint32_t epoch_count;
    uint64_t epochs_seen;
    uint32_t generation; /* the generation of the last line */
    bool is_fresh;       /* no line of this generation has had a step yet */
    double step;         /* the step of the last line that had one */
    bool failed;         /* no memory */
    /* Why metrics of a generation could not be read. */
    char problems[REPORT_PROBLEMS_MAX][REASON_BYTES_MAX + 32];
    uint32_t problem_count;
};

void report_data_take(struct report_data *data, const struct metric_line *line);
void report_data_free(struct report_data *data);

#endif
