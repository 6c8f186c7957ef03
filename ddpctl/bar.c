#include "ddpctl/bar.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ddpctl/units.h"

#define WINDOW_US 60000000u  /* the rate is that of the steps in this time window */
#define KNOWN_US 2000000u    /* a rate needs steps over at least this time */
#define STALLED_US 10000000u /* no step for this time (or 3 steps' time, if longer): no rate */
#define BAR_MIN 10u          /* columns between the brackets, or a multiple of this */
#define BAR_MAX 30u

/* In the order in which they are shown. */
enum part {
    PART_PERCENT,
    PART_EPOCH,
    PART_STEP,
    PART_LOSS,
    PART_RATE,
    PART_ETA,
    PART_STATE,
    PART_RESTARTS,
    PART_RANKS,
    PART_COUNT
};
/* The most important first. */
static const enum part by_importance[] = {PART_PERCENT, PART_ETA,   PART_STATE,
                                          PART_STEP,    PART_LOSS,  PART_RESTARTS,
                                          PART_RATE,    PART_EPOCH, PART_RANKS};

static void add_sample(struct bar *bar, uint64_t now_us, uint64_t step)
{
    uint32_t gone = 0;

    if (bar->sample_count > 0 && bar->samples[bar->sample_count - 1].step == step)
        return;
    while (bar->sample_count > gone + 1 && bar->samples[gone].at_us + WINDOW_US < now_us)
        gone++;
    if (bar->sample_count == BAR_SAMPLES && gone == 0)
        gone = 1;
    memmove(bar->samples, bar->samples + gone, (bar->sample_count - gone) * sizeof bar->samples[0]);
    bar->sample_count -= gone;
    bar->samples[bar->sample_count++] = (struct bar_sample){now_us, step};
}

static void take_job(struct bar *bar, const struct part_job *job, uint64_t now_us)
{
    if (job->generation != bar->generation || job->step < bar->step)
        bar->sample_count = 0;
    bar->is_known = bar->is_known || job->step > 0 || job->epoch > 0 || job->samples_per_s > 0;
    bar->ended = job->ended;
    bar->state = job->state;
    bar->generation = job->generation;
    bar->restarts = job->restarts;
    bar->ranks_running = job->ranks_running;
    bar->world = job->nodes * job->nproc_per_node;
    bar->epoch = job->epoch;
    bar->epochs = job->epochs;
    bar->step = job->step;
    bar->steps = job->steps;
    bar->loss = job->loss;
    bar->samples_per_s = job->samples_per_s;
    if (job->state == JOB_RUNNING && job->step > 0)
        add_sample(bar, now_us, job->step);
}

/* False: the remaining time is not known. */
static bool time_left(const struct bar *bar, uint64_t now_us, uint64_t *left_us)
{
    const struct bar_sample *first = &bar->samples[0], *last;
    uint64_t took_us, silent_us, steps;
    double left;

    if (bar->sample_count < 2 || bar->state != JOB_RUNNING)
        return false;
    last = &bar->samples[bar->sample_count - 1];
    took_us = last->at_us - first->at_us;
    steps = last->step - first->step;
    silent_us = now_us > last->at_us ? now_us - last->at_us : 0;
    if (took_us < KNOWN_US ||
        (silent_us > STALLED_US && silent_us > 3 * took_us / (bar->sample_count - 1)))
        return false;
    left = (double)took_us / (double)steps *
               (double)(bar->steps > last->step ? bar->steps - last->step : 0) -
           (double)silent_us;
    *left_us = left > 0 ? left < (double)DURATION_US_MAX ? (uint64_t)left : DURATION_US_MAX : 0;
    return true;
}

static double fraction(const struct bar *bar)
{
    if (bar->steps == 0)
        return 0;
    return bar->step < bar->steps ? (double)bar->step / (double)bar->steps : 1;
}

static void eta_text(const struct bar *bar, uint64_t now_us, char text[TEXT_BYTES])
{
    char duration[TEXT_BYTES];
    uint64_t left_us = 0;

    if (bar->steps == 0 || bar->state != JOB_RUNNING)
        return;
    if (!time_left(bar, now_us, &left_us)) {
        (void)snprintf(text, TEXT_BYTES, "ETA -");
        return;
    }
    duration_text(left_us, duration);
    (void)snprintf(text, TEXT_BYTES, "ETA %.30s", duration);
}

static void make_parts(const struct bar *bar, uint64_t now_us, char parts[PART_COUNT][TEXT_BYTES])
{
    char step[TEXT_BYTES], steps[TEXT_BYTES];

    count_text((double)bar->step, step);
    count_text((double)bar->steps, steps);
    if (bar->steps > 0)
        (void)snprintf(parts[PART_PERCENT], TEXT_BYTES, "%3.0f%%", floor(fraction(bar) * 100));
    if (bar->epochs > 0)
        (void)snprintf(parts[PART_EPOCH], TEXT_BYTES, "epoch %u/%u", bar->epoch, bar->epochs);
    else if (bar->epoch > 0)
        (void)snprintf(parts[PART_EPOCH], TEXT_BYTES, "epoch %u", bar->epoch);
    (void)snprintf(parts[PART_STEP], TEXT_BYTES, "step %.15s%s%.15s", step,
                   bar->steps > 0 ? "/" : "", bar->steps > 0 ? steps : "");
    (void)snprintf(parts[PART_LOSS], TEXT_BYTES, fabs(bar->loss) < 1e6 ? "loss %.4f" : "loss %.3g",
                   bar->loss);
    if (bar->samples_per_s > 0) {
        count_text(bar->samples_per_s, steps);
        (void)snprintf(parts[PART_RATE], TEXT_BYTES, "%.30s/s", steps);
    }
    eta_text(bar, now_us, parts[PART_ETA]);
    if (bar->state != JOB_RUNNING)
        (void)snprintf(parts[PART_STATE], TEXT_BYTES, "%s", job_state_name(bar->state));
    if (bar->restarts > 0)
        (void)snprintf(parts[PART_RESTARTS], TEXT_BYTES, "%u restart%s", bar->restarts,
                       bar->restarts == 1 ? "" : "s");
    if (bar->state == JOB_RUNNING && bar->ranks_running < bar->world)
        (void)snprintf(parts[PART_RANKS], TEXT_BYTES, "%u/%u ranks", bar->ranks_running,
                       bar->world);
}

/* "[====>     ]" */
static void draw(double done, uint32_t columns, struct buf *line)
{
    uint32_t full = (uint32_t)(done * columns);

    buf_add_text(line, "[");
    for (uint32_t i = 0; i < columns; i++)
        buf_add_text(line, i < full ? "=" : i == full ? ">" : " ");
    buf_add_text(line, "]");
}

static void write_line(const struct bar *bar, const struct bar_event *event, struct buf *line)
{
    char parts[PART_COUNT][TEXT_BYTES] = {0};
    bool is_shown[PART_COUNT] = {0};
    uint32_t room = event->columns - 1, used = 0;
    bool is_first = true;

    make_parts(bar, event->now_us, parts);
    for (size_t i = 0; i < sizeof by_importance / sizeof by_importance[0]; i++) {
        enum part part = by_importance[i];
        uint32_t width = (uint32_t)strlen(parts[part]) + (used > 0 ? 2 : 0);

        if (parts[part][0] == '\0' || used + width > room)
            continue;
        is_shown[part] = true;
        used += width;
    }
    if (bar->steps > 0 && used + 2 + 2 + BAR_MIN <= room) {
        uint32_t columns = (room - used - 4) / BAR_MIN * BAR_MIN; /* rounded: rarely changes */

        draw(fraction(bar), columns < BAR_MAX ? columns : BAR_MAX, line);
        is_first = false;
    }
    for (uint32_t i = 0; i < PART_COUNT; i++) {
        if (!is_shown[i])
            continue;
        buf_printf(line, "%s%s", is_first ? "" : "  ", parts[i]);
        is_first = false;
    }
}

void bar_step(struct bar *bar, const struct bar_event *event, struct buf *line)
{
    if (event->type == BAR_JOB)
        take_job(bar, event->job, event->now_us);
    if (!bar->is_known || bar->ended || event->columns < BAR_COLUMNS_MIN)
        return;
    write_line(bar, event, line);
}
