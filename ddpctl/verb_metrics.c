/* ddpctl metrics: what rank 0 of a job wrote to DDP_METRICS, of all generations. */
#include <stdio.h>
#include <string.h>

#include "ddpctl/attach.h"
#include "ddpctl/metric_table.h"
#include "ddpctl/verbs.h"

struct metrics_run {
    struct metric_lines lines;
    struct metric_table table;
    struct screen *screen;
    struct buf out;
    char problem[REASON_BYTES_MAX]; /* why metrics of a generation could not be read */
};

static void on_line(void *owner, const struct metric_line *line)
{
    struct metrics_run *run = owner;

    metric_table_line(&run->table, line, &run->out);
}

static bool on_log(struct attach *attach, const struct attach_piece *piece)
{
    struct metrics_run *run = attach->options.owner;

    if (piece->problem[0] != '\0') {
        (void)snprintf(run->problem, sizeof run->problem, "%s", piece->problem);
        screen_message(run->screen, "-- generation %u: %s --", piece->generation, run->problem);
    }
    run->table.job_id = attach_job_id(attach);
    metric_lines_take(&run->lines, piece->generation, piece->rank, piece->bytes, piece->byte_count,
                      piece->is_final);
    return screen_out(run->screen, &run->out) == STATUS_OK;
}

static void on_done(struct attach *attach)
{
    struct metrics_run *run = attach->options.owner;

    if (attach->exit_code != CTL_OK)
        return;
    if (run->lines.bad > 0)
        screen_message(run->screen, "-- %llu lines are no flat JSON objects; they are left out --",
                       (unsigned long long)run->lines.bad);
    if (run->lines.good == 0 && run->problem[0] == '\0')
        screen_message(run->screen, "no metrics: rank 0 has written none. ddp-worker does; any "
                                    "program may append JSON lines to the file $DDP_METRICS");
}

int verb_metrics(struct ctl *ctl)
{
    static uint8_t mask[RANKS_PER_JOB_MAX / 8] = {1};
    struct metrics_run run = {.screen = &ctl->screen};
    struct attach_options options = {
        .follow = {.what = LOG_METRICS,
                   .keep_on = ctl->options.follow,
                   .to_current = true,
                   .generation = ctl->options.generation,
                   .from_generation = 1,
                   .rank_mask = mask},
        .show_logs = true,
        .can_detach = true,
        .patience_us = ctl_patience_us(ctl),
        .on_log = on_log,
        .on_done = on_done,
        .owner = &run,
    };
    const char *format = ctl->options.format;
    struct err err = {0};
    int rc = verb_need_one_job(ctl);

    if (rc != CTL_OK)
        return rc;
    if (ctl->screen.json && format != NULL && strcmp(format, "json") != 0)
        return ctl_fail(ctl, CTL_USAGE, "--json and --format do not go together", "");
    if (metric_table_init(&run.table, ctl->screen.json ? "json" : format, ctl->options.field,
                          &err) != STATUS_OK)
        return ctl_fail_err(ctl, CTL_USAGE, &err, "");
    run.lines = (struct metric_lines){.take = on_line, .owner = &run};
    options.job = ctl->words[0];
    rc = attach_run(ctl, &options);
    if (rc == CTL_OK && run.lines.good == 0 && run.problem[0] != '\0')
        rc = ctl_fail(ctl, CTL_FAILED, "no metrics could be read", run.problem);
    metric_lines_close(&run.lines);
    buf_free(&run.out);
    return rc;
}
