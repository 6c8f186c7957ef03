/* Learning-rate schedules, warm-up and early stopping. Pure: rates depend on the options, the
 * number of applied optimizer steps and, for plateau and early stopping, the metrics of the epochs
 * so far. Sources of the formulas: torch.optim.lr_scheduler (PyTorch 2.x); "imagenet":
 * adjust_learning_rate of Apex's ImageNet example.
 *
 * `step` counts applied optimizer steps: one that was skipped because of an overflow does not
 * count. `epoch` counts passes over the data from 0. */
#ifndef WORKER_NET_SCHEDULE_H
#define WORKER_NET_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

enum schedule_kind {
    SCHEDULE_CONSTANT,
    SCHEDULE_STEP,     /* base * gamma^(epoch / step_epochs): StepLR */
    SCHEDULE_IMAGENET, /* /10 at 30, 60 and once more at 80 epochs, with its own warm-up over 5 */
    SCHEDULE_COSINE,   /* by epoch, from base to min_lr at the last: CosineAnnealingLR */
    SCHEDULE_ONECYCLE, /* by step, with momentum cycling: OneCycleLR */
    SCHEDULE_PLATEAU,  /* by the metric: ReduceLROnPlateau */
};

struct schedule_options {
    enum schedule_kind kind;
    double base_lr; /* of OneCycle: the maximum */
    double base_momentum;
    uint32_t epochs;
    uint64_t steps_per_epoch;
    double gamma; /* STEP, PLATEAU: the factor */
    uint32_t step_epochs;
    double min_lr;
    /* Linear warm-up over the first epochs; not for IMAGENET and ONECYCLE.
     *   lr * (epoch + 1) / warmup_epochs
     *   lr * epoch / warmup_epochs        from zero: epoch 0 has rate 0, as LambdaLR(epoch / N) */
    uint32_t warmup_epochs;
    bool warmup_from_zero;
    /* IMAGENET: its warm-up ends at base * (1 + 1 / (5 * steps_per_epoch)), as in Apex's example,
     * whose step counts from 1 and is then given 1 more; false: it ends at base. */
    bool imagenet_as_apex;
    /* ONECYCLE; defaults of torch: 25, 1e4, 0.3, false, true, 0.85, 0.95 */
    double div_factor, final_div_factor, pct_start;
    bool three_phase, cycle_momentum;
    double momentum_min, momentum_max;
    /* PLATEAU; defaults of torch: min, 10, 1e-4, relative, 0, 1e-8 */
    bool plateau_max; /* the metric is better when it is greater */
    uint32_t patience, cooldown;
    double threshold;
    bool threshold_absolute;
    double eps;
};

/* The part that a checkpoint saves. */
struct schedule_state {
    double plateau_lr; /* of PLATEAU, now; 0: base_lr */
    double plateau_best;
    bool plateau_has_best;
    uint32_t plateau_bad, plateau_cooldown;
};

struct schedule_now {
    double lr, momentum;
};

/* All defaults as torch has them; kind constant. */
void schedule_defaults(struct schedule_options *options);
/* Errors: STATUS_BAD_INPUT, naming the options that contradict one another, and a remedy. */
enum status schedule_check(const struct schedule_options *options, struct err *err);
/* Rate and momentum of the step to come:
 *   step           optimizer steps applied before it
 *   epoch          its epoch, from 0
 *   step_in_epoch  its index in that epoch, from 0 */
struct schedule_now schedule_at(const struct schedule_options *options,
                                const struct schedule_state *state, uint64_t step, uint32_t epoch,
                                uint64_t step_in_epoch);
/* Takes the metric of an epoch that is over; used by PLATEAU alone. A NaN is no improvement. */
void schedule_metric(const struct schedule_options *options, struct schedule_state *state,
                     double metric);
/* -1: there is no such schedule. Names: constant step imagenet cosine onecycle plateau. */
int schedule_kind_named(const char *name);

/* Early stopping on a metric that is better when it is greater (`maximize`) or smaller. The score
 * is the metric or its negative. An epoch with score < best + delta has no improvement, so with
 * delta 0 a tie is one; after `patience` such epochs in a row training stops. */
struct early_stop {
    bool maximize;
    uint32_t patience; /* 0: never */
    double delta;
    /* state */
    bool has_best;
    double best; /* score */
    uint32_t count;
};
/* Takes the metric of an epoch that is over. True: stop now. A NaN counts as no improvement. */
bool early_stop_update(struct early_stop *stop, double metric);

#endif
