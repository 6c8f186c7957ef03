/* Learning-rate schedules, warm-up and early stopping. Pure: what is asked of it is a function of
 * the options, of how many optimizer steps were applied, and (plateau, early stopping) of the
 * metrics that it was told. Sources of the formulas: torch.optim.lr_scheduler (PyTorch 2.x);
 * "imagenet": adjust_learning_rate of Apex's ImageNet example.
 *
 * Position: `step` counts applied optimizer steps; a step that was skipped because of an overflow
 * does not count, so a schedule never runs ahead of the weights. `epoch` counts passes from 0. */
#ifndef WORKER_SCHEDULE_H
#define WORKER_SCHEDULE_H

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
    /* Linear warm-up over the first epochs: lr * (epoch + 1) / warmup_epochs. From zero: lr * epoch
     * / warmup_epochs, so that epoch 0 trains with 0, as the seed that this comes from does. Not
     * for IMAGENET and ONECYCLE. */
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

/* What survives in a checkpoint. */
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
/* STATUS_BAD_INPUT: which option does not go with which, and what to do. */
enum status schedule_check(const struct schedule_options *options, struct err *err);
/* Rate and momentum of the step to come: `step` were applied before it, it is number
 * `step_in_epoch` (from 0) of `epoch`. */
struct schedule_now schedule_at(const struct schedule_options *options,
                                const struct schedule_state *state, uint64_t step, uint32_t epoch,
                                uint64_t step_in_epoch);
/* The metric of an epoch that is over. Only PLATEAU listens. A NaN is no improvement. */
void schedule_metric(const struct schedule_options *options, struct schedule_state *state,
                     double metric);
/* -1: there is no such schedule. Names: constant step imagenet cosine onecycle plateau. */
int schedule_kind_named(const char *name);

/* Early stopping on a metric that is better when it is greater (`maximize`) or smaller. Semantics
 * of the seed: score < best + delta counts up, `patience` in a row stop; a tie is an improvement
 * when delta is 0. */
struct early_stop {
    bool maximize;
    uint32_t patience; /* 0: never */
    double delta;
    /* state */
    bool has_best;
    double best; /* the score: metric, or its negative */
    uint32_t count;
};
/* True: stop now. A NaN counts as no improvement. */
bool early_stop_tell(struct early_stop *stop, double metric);

#endif
