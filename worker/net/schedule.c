#include "worker/net/schedule.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#define PI 3.14159265358979323846
#define IMAGENET_WARMUP_EPOCHS 5u

void schedule_defaults(struct schedule_options *options)
{
    *options = (struct schedule_options){
        .kind = SCHEDULE_CONSTANT,
        .epochs = 1,
        .steps_per_epoch = 1,
        .gamma = 0.1,
        .step_epochs = 30,
        .div_factor = 25,
        .final_div_factor = 1e4,
        .pct_start = 0.3,
        .cycle_momentum = true,
        .momentum_min = 0.85,
        .momentum_max = 0.95,
        .patience = 10,
        .threshold = 1e-4,
        .eps = 1e-8,
    };
}

int schedule_kind_named(const char *name)
{
    static const char *const names[] = {
        [SCHEDULE_CONSTANT] = "constant", [SCHEDULE_STEP] = "step",
        [SCHEDULE_IMAGENET] = "imagenet", [SCHEDULE_COSINE] = "cosine",
        [SCHEDULE_ONECYCLE] = "onecycle", [SCHEDULE_PLATEAU] = "plateau",
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

static double total_steps(const struct schedule_options *options)
{
    return (double)options->epochs * (double)options->steps_per_epoch;
}

enum status schedule_check(const struct schedule_options *options, struct err *err)
{
    bool has_own = options->kind == SCHEDULE_IMAGENET || options->kind == SCHEDULE_ONECYCLE;

    if (has_own && options->warmup_epochs > 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--warmup-epochs: this schedule brings its own warm-up; leave it out");
    if (options->warmup_epochs > options->epochs)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--warmup-epochs %u: there are only %u epochs; give fewer",
                       options->warmup_epochs, options->epochs);
    if (options->kind == SCHEDULE_STEP && options->step_epochs == 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "--lr-step-epochs must be at least 1");
    if (options->kind == SCHEDULE_PLATEAU && !(options->gamma < 1.0))
        return err_set(err, STATUS_BAD_INPUT, 0, "--lr-gamma must be below 1 for plateau");
    if (options->kind == SCHEDULE_ONECYCLE &&
        !(options->pct_start * total_steps(options) >= 1.0 && options->pct_start <= 1.0))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "onecycle: %.0f steps are too few for a rise over %g of them",
                       total_steps(options), options->pct_start);
    return STATUS_OK;
}

/* -- one cycle -- */

static double anneal(double start, double end, double part)
{
    return end + (start - end) / 2.0 * (cos(PI * part) + 1.0);
}

struct phase {
    double end_step;
    double lr_start, lr_end, momentum_start, momentum_end;
};

static int one_cycle_phases(const struct schedule_options *o, struct phase phases[3])
{
    const double total = total_steps(o), initial = o->base_lr / o->div_factor;
    const double last = initial / o->final_div_factor;

    phases[0] = (struct phase){o->pct_start * total - 1.0, initial, o->base_lr, o->momentum_max,
                               o->momentum_min};
    if (!o->three_phase) {
        phases[1] = (struct phase){total - 1.0, o->base_lr, last, o->momentum_min, o->momentum_max};
        return 2;
    }
    phases[1] = (struct phase){2.0 * o->pct_start * total - 2.0, o->base_lr, initial,
                               o->momentum_min, o->momentum_max};
    phases[2] = (struct phase){total - 1.0, initial, last, o->momentum_max, o->momentum_max};
    return 3;
}

static struct schedule_now one_cycle(const struct schedule_options *o, uint64_t step)
{
    struct phase phases[3];
    const int count = one_cycle_phases(o, phases);
    const double last = total_steps(o) - 1.0;
    const double at =
        (double)step < last ? (double)step : last; /* after the last step the rate stays */
    double begin = 0.0;

    for (int i = 0;; i++) {
        const struct phase *phase = &phases[i];

        if (at <= phase->end_step || i == count - 1) {
            const double length = phase->end_step - begin;
            /* a phase of no length is over at once, where PyTorch divides by zero */
            const double part = length > 0.0 ? (at - begin) / length : 1.0;

            assert(at >= begin);
            return (struct schedule_now){
                .lr = anneal(phase->lr_start, phase->lr_end, part),
                .momentum = o->cycle_momentum
                                ? anneal(phase->momentum_start, phase->momentum_end, part)
                                : o->base_momentum,
            };
        }
        begin = phase->end_step;
    }
}

/* -- the others -- */

static double imagenet(const struct schedule_options *o, uint32_t epoch, uint64_t step_in_epoch)
{
    const uint32_t drops = epoch / 30 + (epoch >= 80 ? 1 : 0);
    const double lr = o->base_lr * pow(0.1, drops);
    const double per_epoch = (double)o->steps_per_epoch;
    double done;

    if (epoch >= IMAGENET_WARMUP_EPOCHS)
        return lr;
    done = (double)step_in_epoch + 1.0 + epoch * per_epoch + (o->imagenet_as_apex ? 1.0 : 0.0);
    return lr * done / (IMAGENET_WARMUP_EPOCHS * per_epoch);
}

static double warmed_up(const struct schedule_options *o, uint32_t epoch, double lr)
{
    if (epoch >= o->warmup_epochs)
        return lr;
    return lr * (epoch + (o->warmup_from_zero ? 0.0 : 1.0)) / o->warmup_epochs;
}

/* The warm-up comes first; then the cosine goes over what is left. */
static double cosine(const struct schedule_options *o, uint32_t epoch)
{
    const uint32_t begin = o->warmup_epochs, length = o->epochs > begin ? o->epochs - begin : 0;
    double done = epoch < begin ? 0.0 : (double)(epoch - begin);

    if (length == 0)
        return o->base_lr;
    if (done > length)
        done = length; /* after the last epoch the rate stays */
    return o->min_lr + (o->base_lr - o->min_lr) * (1.0 + cos(PI * done / length)) / 2.0;
}

struct schedule_now schedule_at(const struct schedule_options *o,
                                const struct schedule_state *state, uint64_t step, uint32_t epoch,
                                uint64_t step_in_epoch)
{
    double lr = o->base_lr;
    uint32_t drops;

    assert(o->steps_per_epoch > 0 && step_in_epoch < o->steps_per_epoch);
    switch (o->kind) {
    case SCHEDULE_ONECYCLE:
        return one_cycle(o, step);
    case SCHEDULE_IMAGENET:
        return (struct schedule_now){imagenet(o, epoch, step_in_epoch), o->base_momentum};
    case SCHEDULE_CONSTANT:
        break;
    case SCHEDULE_STEP:
        assert(o->step_epochs > 0); /* schedule_check */
        drops = epoch / o->step_epochs;
        lr = o->base_lr * pow(o->gamma, drops);
        break;
    case SCHEDULE_COSINE:
        lr = cosine(o, epoch);
        break;
    case SCHEDULE_PLATEAU:
        lr = state->plateau_lr > 0.0 ? state->plateau_lr : o->base_lr;
        break;
    }
    return (struct schedule_now){warmed_up(o, epoch, lr), o->base_momentum};
}

static bool is_better(const struct schedule_options *o, double metric, double best)
{
    if (o->threshold_absolute)
        return o->plateau_max ? metric > best + o->threshold : metric < best - o->threshold;
    return o->plateau_max ? metric > best * (1.0 + o->threshold)
                          : metric < best * (1.0 - o->threshold);
}

void schedule_metric(const struct schedule_options *o, struct schedule_state *state, double metric)
{
    double lr = state->plateau_lr > 0.0 ? state->plateau_lr : o->base_lr, lower;

    if (o->kind != SCHEDULE_PLATEAU)
        return;
    if (!state->plateau_has_best ? isfinite(metric) : is_better(o, metric, state->plateau_best)) {
        state->plateau_best = metric;
        state->plateau_has_best = true;
        state->plateau_bad = 0;
    } else {
        state->plateau_bad++;
    }
    if (state->plateau_cooldown > 0) {
        state->plateau_cooldown--;
        state->plateau_bad = 0;
    }
    if (state->plateau_bad <= o->patience)
        return;
    lower = fmax(lr * o->gamma, o->min_lr);
    assert(lower >= o->min_lr);
    if (lr - lower > o->eps)
        state->plateau_lr = lower;
    state->plateau_cooldown = o->cooldown;
    state->plateau_bad = 0;
}

bool early_stop_update(struct early_stop *stop, double metric)
{
    const double score = stop->maximize ? metric : -metric;

    assert(stop->delta >= 0.0);
    if (stop->patience == 0)
        return false;
    if (!stop->has_best && isfinite(score)) {
        stop->best = score;
        stop->has_best = true;
        return false;
    }
    if (!(score >= stop->best + stop->delta)) {
        stop->count++;
        return stop->count >= stop->patience;
    }
    stop->best = score;
    stop->count = 0;
    return false;
}
