#include "ddpctl/report_page.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ddpctl/chart.h"
#include "ddpctl/html.h"
#include "ddpctl/job_lines.h"
#include "ddpctl/output.h"
#include "ddpctl/report_style.h"
#include "ddpctl/units.h"

static const struct chart charts[] = {
    {.id = "loss",
     .title = "Loss",
     .unit = "",
     .may_be_log = true,
     .curves = {{"train", CURVE_LOSS}, {"validation", CURVE_LOSS_VAL}},
     .curve_count = 2},
    {.id = "accuracy",
     .title = "Accuracy, %",
     .unit = " %",
     .curves = {{"train, top 1", CURVE_ACC1},
                {"validation, top 1", CURVE_ACC1_VAL},
                {"validation, top 5", CURVE_ACC5_VAL}},
     .curve_count = 3},
    {.id = "lr",
     .title = "Learning rate",
     .unit = "",
     .from_zero = true,
     .curves = {{"learning rate", CURVE_LR}},
     .curve_count = 1},
    {.id = "rate",
     .title = "Images a second, all ranks",
     .unit = " images/s",
     .from_zero = true,
     .curves = {{"images/s", CURVE_RATE}},
     .curve_count = 1},
    {.id = "time",
     .title = "Time of a step, ms",
     .unit = " ms",
     .from_zero = true,
     .curves = {{"step", CURVE_STEP_MS},
                {"waiting for data", CURVE_DATA_MS},
                {"waiting for gradients", CURVE_EXPOSED_MS}},
     .curve_count = 3},
    {.id = "scale",
     .title = "Loss scale",
     .unit = "",
     .may_be_log = true,
     .curves = {{"loss scale", CURVE_SCALE}},
     .curve_count = 1},
};

/* "2026-11-22 18:03:24 UTC"; "-" for 0. */
static void put_time(int64_t wall_ms, struct buf *out)
{
    char text[TEXT_BYTES];

    if (wall_ms <= 0) {
        buf_add_text(out, "-");
        return;
    }
    time_text(wall_ms, text);
    buf_printf(out, "%.10s %.8s UTC", text, text + 11);
}

static void put_fact(const char *name, const char *value, struct buf *out)
{
    buf_printf(out, "<div><dt>%s</dt><dd>", name);
    html_words(value[0] ? value : "-", out);
    buf_add_text(out, "</dd></div>\n");
}

__attribute__((format(printf, 3, 4))) static void put_fact_of(const char *name, struct buf *out,
                                                              const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_fact(name, text, out);
}

/* Escapes text line by line, so that line feeds stay: the page shows them. */
static void put_lines(const char *text, size_t byte_count, struct buf *out)
{
    while (byte_count > 0) {
        const char *end = memchr(text, '\n', byte_count);
        size_t length = end != NULL ? (size_t)(end - text) : byte_count;

        html_text(text, length, out);
        buf_add_text(out, end != NULL ? "\n" : "");
        length += end != NULL;
        text += length;
        byte_count -= length;
    }
}

static void put_command(const struct msg_job_info *info, struct buf *out)
{
    uint32_t shown = info->argv.count < 200 ? info->argv.count : 200;

    if (info->argv.count == 0)
        return;
    buf_add_text(out, "<div class=\"wide\"><dt>Command</dt><dd><code>");
    for (uint32_t i = 0; i < shown; i++) {
        const char *word = info->argv.items[i];
        bool is_plain = word[0] != '\0' && strpbrk(word, " \t\n\"'\\$`&|;<>()*?[]#~{}!") == NULL;

        buf_add_text(out, i > 0 ? " " : "");
        buf_add_text(out, is_plain ? "" : "&#39;");
        put_lines(word, strnlen(word, 2000), out);
        buf_add_text(out, is_plain ? "" : "&#39;");
    }
    buf_add_text(out, shown < info->argv.count ? " ..." : "");
    buf_add_text(out, "</code></dd></div>\n<div class=\"wide\"><dt>In</dt><dd><code>");
    html_words(info->cwd, out);
    buf_add_text(out, "</code></dd></div>\n");
}

static void put_dates(const struct part_job *job, int64_t now_ms, struct buf *out)
{
    int64_t end_ms = job->ended ? job->ended_ms : now_ms;
    char took[TEXT_BYTES];

    buf_add_text(out, "<div><dt>Submitted</dt><dd>");
    put_time(job->submitted_ms, out);
    buf_add_text(out, "</dd></div>\n<div><dt>Started</dt><dd>");
    put_time(job->started_ms, out);
    buf_add_text(out, "</dd></div>\n<div><dt>Ended</dt><dd>");
    put_time(job->ended ? job->ended_ms : 0, out);
    buf_add_text(out, "</dd></div>\n");
    if (job->started_ms > 0 && end_ms > job->started_ms) {
        duration_text((uint64_t)(end_ms - job->started_ms) * 1000, took);
        put_fact(job->ended ? "Took" : "Runs for", took, out);
    }
}

static void put_facts(const struct report_page *page, struct buf *out)
{
    const struct part_job *job = &page->info->jobs.items[0];
    const struct report_data *data = page->data;
    double checkpoint = (double)job->checkpoint_step;

    if (data->checkpoint_count > 0) /* metrics may be newer: progress comes once a second */
        checkpoint = fmax(checkpoint, data->checkpoints[data->checkpoint_count - 1]);
    buf_add_text(out, "<dl>\n");
    put_fact("User", job->user, out);
    put_fact_of("Ranks", out, "%u on %u node%s, %u each", job->nodes * job->nproc_per_node,
                job->nodes, job->nodes == 1 ? "" : "s", job->nproc_per_node);
    put_fact("Where", job->where, out);
    put_dates(job, page->now_ms, out);
    put_fact_of("Restarts", out, "%u (%u of %u of the program's own used)", job->restarts,
                job->restarts_without_progress, job->max_restarts);
    if (job->steps > 0)
        put_fact_of("Step", out, "%llu of %llu", (unsigned long long)job->step,
                    (unsigned long long)job->steps);
    else if (job->step > 0)
        put_fact_of("Step", out, "%llu", (unsigned long long)job->step);
    if (job->epochs > 0)
        put_fact_of("Epoch", out, "%u of %u", job->epoch, job->epochs);
    if (checkpoint > 0)
        put_fact_of("Newest checkpoint", out, "step %.0f", checkpoint);
    put_command(page->info, out);
    buf_add_text(out, "</dl>\n");
}

/* The newest known cause; NULL: none is known. */
static const struct cause *last_cause(const struct report_page *page)
{
    const struct cause *cause = NULL;

    for (uint32_t i = page->info->jobs.items[0].generation; cause == NULL && i > 0; i--)
        cause = causes_find(page->causes, i);
    return cause;
}

static void put_failure(const struct report_page *page, struct buf *out)
{
    const struct msg_job_info *info = page->info;
    const struct cause *cause = last_cause(page);

    if (info->failed_rank < 0)
        return;
    buf_printf(out, "<h2>Last failure</h2>\n<p>rank %d on ", info->failed_rank);
    html_words(info->failed_node, out);
    buf_add_text(out, cause != NULL ? ": " : "");
    html_words(cause != NULL ? cause->text : "", out);
    buf_add_text(out, info->tail[0] ? "; its last lines:</p>\n<pre>" : "</p>\n");
    put_lines(info->tail, strlen(info->tail), out);
    buf_add_text(out, info->tail[0] ? "</pre>\n" : "");
}

/* The range of steps of all curves. */
static bool find_steps(const struct report_data *data, double *min, double *max)
{
    *min = INFINITY;
    *max = -INFINITY;
    for (uint32_t i = 0; i < CURVE_COUNT; i++) {
        const struct series *series = &data->curves[i];

        if (series->count == 0)
            continue;
        *min = fmin(*min, series->points[0].step);
        *max = fmax(*max, series->points[series->count - 1].step);
    }
    if (*min > 0 && *min < *max * 0.2)
        *min = 0;
    return *min <= *max;
}

/* A chart without points is left out, and so is a loss scale that is always 1. */
static bool is_worth_it(const struct chart *chart, const struct report_data *data)
{
    const struct series *scale = &data->curves[CURVE_SCALE];
    bool is_one = true;

    for (uint32_t i = 0; i < scale->count; i++)
        is_one = is_one && scale->points[i].value == 1;
    return chart_has_points(chart, data) && !(chart->curves[0].curve == CURVE_SCALE && is_one);
}

static void put_charts(const struct report_page *page, struct buf *out)
{
    const struct report_data *data = page->data;
    double min, max;

    buf_add_text(out, "<h2>Curves</h2>\n");
    if (page->bad_lines > 0)
        buf_printf(
            out,
            "<p class=\"note\">%llu of %llu lines are no flat JSON objects and are left out.</p>\n",
            (unsigned long long)page->bad_lines,
            (unsigned long long)page->lines + (unsigned long long)page->bad_lines);
    for (uint32_t i = 0; i < data->problem_count; i++) {
        buf_add_text(out, "<p class=\"note\">");
        html_words(data->problems[i], out);
        buf_add_text(out, "</p>\n");
    }
    if (!find_steps(data, &min, &max)) {
        buf_add_text(out, "<p>This job has no metrics: rank 0 has written no numbers to "
                          "<code>DDP_METRICS</code>.</p>\n");
        return;
    }
    buf_add_text(out, "<div class=\"charts\">\n");
    for (size_t i = 0; i < sizeof charts / sizeof charts[0]; i++)
        if (is_worth_it(&charts[i], data))
            chart_write(&charts[i], data, min, max, out);
    buf_add_text(out, "</div>\n");
    if (data->restart_count > 0 || data->checkpoint_count > 0)
        buf_printf(out, "<p class=\"note\">%s%s%s</p>\n",
                   data->restart_count > 0
                       ? "Dashed lines: a new generation (g2, ...) goes on after this step; "
                         "work after it was done again. "
                       : "",
                   data->checkpoint_count > 0 ? "Triangles: checkpoints." : "", "");
}

static void put_cell(double value, const char *format, struct buf *out)
{
    char text[40] = "-";

    if (!isnan(value))
        (void)snprintf(text, sizeof text, format[0] == 'd' ? "%.0f" : "%.5g", value);
    buf_printf(out, "<td class=\"n\">%s</td>", text);
}

static void put_epochs(const struct report_data *data, struct buf *out)
{
    if (data->epoch_count == 0)
        return;
    buf_printf(
        out,
        "<h2>Epochs</h2>\n<table><caption>%s%u epoch%s</caption>"
        "<thead><tr><th scope=\"col\" class=\"n\">Epoch</th><th scope=\"col\" class=\"n\">Step</th>"
        "<th scope=\"col\" class=\"n\">Train loss</th><th scope=\"col\" class=\"n\">Val loss</th>"
        "<th scope=\"col\" class=\"n\">Top 1</th><th scope=\"col\" class=\"n\">Top "
        "5</th></tr></thead>"
        "<tbody>\n",
        data->epochs_seen > data->epoch_count ? "The last " : "", data->epoch_count,
        data->epoch_count == 1 ? "" : "s");
    for (uint32_t i = 0; i < data->epoch_count; i++) {
        const struct report_epoch *row = &data->epochs[i];

        buf_add_text(out, "<tr>");
        put_cell(row->epoch, "d", out);
        put_cell(row->step, "d", out);
        put_cell(row->loss, "g", out);
        put_cell(row->val_loss, "g", out);
        put_cell(row->acc1, "g", out);
        put_cell(row->acc5, "g", out);
        buf_add_text(out, "</tr>\n");
    }
    buf_add_text(out, "</tbody></table>\n");
}

static const struct report_restart *restart_of(const struct report_data *data, uint32_t generation)
{
    for (uint32_t i = 0; i < data->restart_count; i++)
        if (data->restarts[i].generation == generation)
            return &data->restarts[i];
    return NULL;
}

static void put_restarts(const struct report_page *page, struct buf *out)
{
    uint32_t last = page->info->jobs.items[0].generation;
    uint32_t first = last > REPORT_EVENTS_MAX ? last - REPORT_EVENTS_MAX : 1;

    if (last < 2)
        return;
    buf_printf(
        out,
        "<h2>Restarts</h2>\n<table><caption>Why each generation ended, and where the next one "
        "began%s</caption><thead><tr><th scope=\"col\">Gen.</th><th scope=\"col\">Ended</th>"
        "<th scope=\"col\">Cause</th><th scope=\"col\" class=\"n\">Next after "
        "step</th></tr></thead>"
        "<tbody>\n",
        first > 1 ? " (the last ones)" : "");
    for (uint32_t generation = first; generation < last; generation++) {
        const struct cause *cause = causes_find(page->causes, generation);
        const struct report_restart *next = restart_of(page->data, generation + 1);

        buf_printf(out, "<tr><td>%u</td><td class=\"t\">", generation);
        put_time(cause != NULL ? cause->at_ms : 0, out);
        buf_add_text(out, "</td><td>");
        html_words(cause != NULL ? cause->text : "not known", out);
        buf_add_text(out, "</td>");
        put_cell(next != NULL ? next->step : (double)NAN, "d", out);
        buf_add_text(out, "</tr>\n");
    }
    buf_add_text(out, "</tbody></table>\n");
}

static void put_end(const struct part_job_rank *rank, struct buf *out)
{
    char text[TEXT_BYTES];

    if (rank->state == RANK_RUNNING || rank->state == RANK_WAITING || rank->state == RANK_LOST) {
        buf_add_text(out, "-");
    } else if (rank->signal != 0) {
        signal_text(rank->signal, text);
        buf_add_text(out, text);
    } else {
        buf_printf(out, "%d", rank->exit_code);
    }
}

/* Whether the rank failed by itself, not because another rank had failed. */
static bool is_bad(const struct part_job_rank *rank)
{
    return rank->state == RANK_LOST ||
           (rank->state == RANK_EXITED && (rank->exit_code != 0 || rank->signal != 0));
}

static void put_rank(const struct msg_job_info *info, const struct part_job_rank *rank,
                     struct buf *out)
{
    bool is_first = (int64_t)rank->rank == info->failed_rank && is_bad(rank);

    buf_printf(out, "<tr%s><td>%u</td><td>", is_bad(rank) ? " class=\"bad\"" : "", rank->rank);
    html_words(rank->node, out);
    buf_printf(out, "</td><td>%u</td><td>%u</td><td>%s%s</td><td>", rank->slot, rank->pid,
               rank_state_name(rank->state), is_first ? ", failed first" : "");
    put_end(rank, out);
    buf_add_text(out, "</td></tr>\n");
}

/* Lists the first ranks, and after them those that ended badly. */
static void put_ranks(const struct msg_job_info *info, struct buf *out)
{
    uint32_t shown = 0, left_out = 0;

    if (info->ranks.count == 0)
        return;
    buf_printf(out,
               "<h2>Ranks</h2>\n<table><caption>Generation %u: where each rank ran and how it ended"
               "</caption><thead><tr><th scope=\"col\">Rank</th><th scope=\"col\">Node</th>"
               "<th scope=\"col\">Slot</th><th scope=\"col\">PID</th>"
               "<th scope=\"col\">State</th><th scope=\"col\">Exit</th></tr></thead><tbody>\n",
               info->jobs.items[0].generation);
    for (uint32_t i = 0; i < info->ranks.count; i++) {
        const struct part_job_rank *rank = &info->ranks.items[i];

        if (i < REPORT_RANKS_MAX || (is_bad(rank) && shown < 2 * REPORT_RANKS_MAX)) {
            put_rank(info, rank, out);
            shown++;
        } else {
            left_out++;
        }
    }
    buf_add_text(out, "</tbody></table>\n");
    if (left_out > 0)
        buf_printf(out, "<p class=\"note\">%u further ranks are not listed.</p>\n", left_out);
}

static void put_events(const struct report_page *page, struct buf *out)
{
    if (page->event_count == 0)
        return;
    buf_add_text(out, "<h2>Events</h2>\n<table><caption>What happened, in words");
    if (page->events_left_out > 0)
        buf_printf(out, "; %llu earlier ones are not listed",
                   (unsigned long long)page->events_left_out);
    buf_add_text(out, "</caption><thead><tr><th scope=\"col\">Time</th><th scope=\"col\">Gen.</th>"
                      "<th scope=\"col\">Event</th></tr></thead><tbody>\n");
    for (uint32_t i = 0; i < page->event_count; i++) {
        const struct part_event *event = &page->events[i];

        buf_add_text(out, "<tr><td class=\"t\">");
        put_time(event->at_ms, out);
        if (event->generation > 0)
            buf_printf(out, "</td><td>%u</td><td>", event->generation);
        else
            buf_add_text(out, "</td><td>-</td><td>");
        html_words(event->text, out);
        buf_add_text(out, "</td></tr>\n");
    }
    buf_add_text(out, "</tbody></table>\n");
}

/* What the page may load. For a served page the HTTP headers say that (http_server.c). */
static void put_policy(const struct report_live *live, struct buf *out)
{
    if (live == NULL) {
        buf_add_text(out,
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                     "style-src 'unsafe-inline'\">\n");
        return;
    }
    buf_add_text(out, "<link rel=\"stylesheet\" href=\"../style.css\">\n");
    if (live->refresh_s > 0)
        buf_printf(out, "<meta http-equiv=\"refresh\" content=\"%u\">\n", live->refresh_s);
}

static void put_log(const struct report_live *live, struct buf *out)
{
    buf_printf(out, "<h2 id=\"log\">Log of rank %u</h2>\n", live->rank);
    if (live->log_problem[0] != '\0') {
        buf_add_text(out, "<p class=\"note\">");
        html_words(live->log_problem, out);
        buf_add_text(out, "</p>\n");
    } else if (live->log_bytes == 0) {
        buf_add_text(out, "<p class=\"note\">It has printed nothing yet.</p>\n");
    }
    if (live->log_bytes == 0)
        return;
    buf_printf(out, "<p class=\"note\">Its last lines in generation %u.</p>\n<pre>",
               live->generation);
    put_lines(live->log, live->log_bytes, out);
    buf_add_text(out, "</pre>\n");
}

static void put_head(const struct report_page *page, struct buf *out)
{
    const struct part_job *job = &page->info->jobs.items[0];
    char id[JOB_LINE_ID_BYTES];
    struct buf verdict = {0};

    buf_add_text(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n");
    put_policy(page->live, out);
    buf_add_text(out, "<title>");
    html_words(job->name, out);
    job_line_id(job, id);
    buf_printf(out, " (%s)</title>\n", id);
    if (page->live == NULL)
        buf_printf(out, "<style>\n%s</style>", report_style);
    buf_printf(out, "</head><body><main>\n%s<h1>",
               page->live != NULL ? "<nav><a href=\"../\">all jobs and nodes</a></nav>\n" : "");
    html_words(job->name, out);
    buf_printf(out, "</h1>\n<p class=\"verdict %s\"><b>", job_state_name(job->state));
    output_verdict(page->info, &verdict); /* escaped for a terminal; now for a page */
    html_text(verdict.bytes, verdict.byte_count, out);
    out->failed = out->failed || verdict.failed;
    buf_free(&verdict);
    buf_add_text(out, job->ended ? "</b></p>\n" : "</b> &#8212; as of ");
    if (!job->ended) {
        put_time(page->now_ms, out);
        buf_add_text(out, "</p>\n");
    }
}

void report_page_write(const struct report_page *page, struct buf *out)
{
    put_head(page, out);
    put_facts(page, out);
    put_failure(page, out);
    put_charts(page, out);
    if (page->live != NULL && page->live->is_partial)
        buf_add_text(out, "<p class=\"note\">Metrics are still being read; the curves grow.</p>\n");
    if (page->live != NULL)
        put_log(page->live, out);
    put_restarts(page, out);
    put_epochs(page->data, out);
    put_ranks(page->info, out);
    put_events(page, out);
    buf_add_text(out, "</main>\n<footer>ddpctl " DDP_VERSION " report, ");
    put_time(page->now_ms, out);
    buf_add_text(out, "</footer></body></html>\n");
}
