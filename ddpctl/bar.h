/* The progress bar of a job that is followed: one line for a terminal.
 *
 *   [======>             ]  34%  epoch 3/10  step 1.2k/3.6k  loss 0.4321  5.1k/s  ETA 12m  2 restarts
 *
 * On a narrow terminal the least important parts are left out. The remaining time is computed from
 * the steps of the last minute in this generation. It is unknown during their first two seconds and
 * when no steps come. Pure. */
#ifndef DDPCTL_BAR_H
#define DDPCTL_BAR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/msg.h"

enum { BAR_SAMPLES = 64, BAR_COLUMNS_MIN = 8 };

enum bar_event_type {
    BAR_JOB,  /* the server has sent the job's state */
    BAR_TICK, /* time has passed, or the terminal has another width */
};
struct bar_event {
    enum bar_event_type type;
    uint64_t now_us;
    uint32_t columns;           /* of the terminal */
    const struct part_job *job; /* BAR_JOB */
};

struct bar_sample {
    uint64_t at_us, step;
};

struct bar {
    bool is_known, ended;
    enum job_state state;
    uint32_t generation, restarts, ranks_running, world, epoch, epochs;
    uint64_t step, steps;
    double loss, samples_per_s;
    struct bar_sample samples[BAR_SAMPLES]; /* of this generation, the oldest first */
    uint32_t sample_count;
};

/* Appends the line to show: ASCII, at most `columns` - 1 wide. Appends nothing if no bar should be
 * shown, as before the first progress and after the end. `bar` must be zeroed before the first
 * event. */
void bar_step(struct bar *bar, const struct bar_event *event, struct buf *line);

#endif
