#include "ddpctl/http_pages.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ddpctl/html.h"
#include "ddpctl/output.h"
#include "ddpctl/report_style.h"
#include "ddpctl/units.h"

/* On a narrow screen each row becomes a block, and each cell names its column. */
static const char more_style[] =
    "a{color:var(--c0)}nav{margin:0 0 .6rem}\n"
    ".sums{display:flex;flex-wrap:wrap;gap:.3rem 1.4rem;margin:.4rem 0}.sums b{font-weight:600}\n"
    ".lost{border:1px solid var(--bad);border-radius:6px;padding:.5rem .7rem;color:var(--bad)}\n"
    ".bad{color:var(--bad)}.good{color:var(--good)}.dim{color:var(--dim)}\n"
    ".bar{width:100%;max-width:7rem;height:8px;display:block}.bar .b{fill:var(--line)}"
    ".bar .f{fill:var(--c0)}\n"
    ".gpus{display:flex;flex-wrap:wrap;gap:.2rem .5rem}.gpu{border:1px solid var(--line);"
    "border-radius:5px;padding:.05rem .35rem;font-size:.8rem;background:var(--panel)}"
    ".gpu.closed{border-color:var(--bad)}\n"
    "table.list td{overflow-wrap:break-word}table.list td:first-child,table.list td:last-child{"
    "overflow-wrap:anywhere;min-width:7rem}\n"
    "@media (max-width:64rem){table.list thead{display:none}table.list tr{display:block;"
    "border-bottom:1px solid var(--line);padding:.3rem 0}table.list td{display:flex;gap:.6rem;"
    "border:0;padding:.1rem 0;text-align:left}table.list td::before{content:attr(data-l);"
    "flex:0 0 6rem;color:var(--dim)}table.list td:empty{display:none}}\n";

void http_style_write(struct buf *out)
{
    buf_add_text(out, report_style);
    buf_add_text(out, more_style);
}

static void put_head(const char *title, const char *up, uint32_t refresh_s, struct buf *out)
{
    buf_printf(out,
               "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
               "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
               "<link rel=\"stylesheet\" href=\"%sstyle.css\">\n",
               up);
    if (refresh_s > 0)
        buf_printf(out, "<meta http-equiv=\"refresh\" content=\"%u\">\n", refresh_s);
    buf_add_text(out, "<title>");
    html_words(title, out);
    buf_add_text(out, "</title></head><body><main>\n");
}

void http_problem_write(const char *title, const char *text, const char *up, struct buf *out)
{
    put_head(title, up, 0, out);
    buf_add_text(out, "<h1>");
    html_words(title, out);
    buf_add_text(out, "</h1>\n<p>");
    html_words(text, out);
    buf_printf(out, "</p>\n<p><a href=\"%s./\">all jobs and nodes</a></p>\n</main></body></html>\n",
               up);
}

static void put_cell(const char *label, const char *text, struct buf *out)
{
    buf_printf(out, "<td data-l=\"%s\">", label);
    html_words(text, out);
    buf_add_text(out, "</td>");
}

/* A bar of `percent`, and the text beside it. */
static void put_bar(double percent, struct buf *out)
{
    if (isnan(percent))
        return;
    percent = percent < 0 ? 0 : percent > 100 ? 100 : percent;
    buf_printf(out,
               "<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" "
               "aria-hidden=\"true\"><rect class=\"b\" width=\"100\" height=\"8\"/>"
               "<rect class=\"f\" width=\"%.1f\" height=\"8\"/></svg>",
               percent);
}

static void bytes_text(double bytes, char text[TEXT_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;

    while (bytes >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1024;
        unit++;
    }
    (void)snprintf(text, TEXT_BYTES, bytes < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", bytes,
                   units[unit]);
}

/* "340/1k, 34 %" */
static void progress_text(const struct part_job *job, char *text, size_t text_bytes)
{
    char step[TEXT_BYTES], steps[TEXT_BYTES];

    text[0] = '\0';
    count_text((double)job->step, step);
    count_text((double)job->steps, steps);
    if (job->steps > 0)
        (void)snprintf(text, text_bytes, "%s/%s, %.0f %%", step, steps,
                       floor(100 * (double)job->step / (double)job->steps));
    else if (job->step > 0)
        (void)snprintf(text, text_bytes, "%s", step);
}

static void left_text(const struct cluster_job *job, char text[TEXT_BYTES])
{
    const struct part_job *part = &job->part;
    double left_us;

    text[0] = '\0';
    if (isnan(job->steps_per_s) || job->steps_per_s <= 0 || part->steps <= part->step)
        return;
    left_us = (double)(part->steps - part->step) / job->steps_per_s * 1e6;
    if (left_us < (double)DURATION_US_MAX)
        duration_text((uint64_t)left_us, text);
}

static const char *state_class(enum job_state state)
{
    switch (state) {
    case JOB_RUNNING:
    case JOB_SUCCEEDED:
        return "good";
    case JOB_RESTARTING:
    case JOB_FAILED:
        return "bad";
    case JOB_QUEUED:
    case JOB_STARTING:
    case JOB_CANCELLED:
        return "dim";
    }
    return "";
}

static void put_job_state(const struct part_job *job, struct buf *out)
{
    buf_printf(out, "<td data-l=\"State\"><span class=\"%s\">%s</span></td>",
               state_class(job->state), job_state_name(job->state));
}

static void put_progress(const struct cluster_job *job, struct buf *out)
{
    const struct part_job *part = &job->part;
    char text[3 * TEXT_BYTES];

    progress_text(part, text, sizeof text);
    buf_add_text(out, "<td data-l=\"Step\">");
    if (text[0] != '\0') {
        buf_add_text(out, "<span>");
        html_words(text, out);
        put_bar(part->steps > 0 ? 100 * (double)part->step / (double)part->steps : (double)NAN,
                out);
        buf_add_text(out, "</span>");
    }
    buf_add_text(out, "</td><td data-l=\"Loss\">");
    if (part->step > 0)
        buf_printf(out, fabs(part->loss) < 1e6 ? "%.4f" : "%.3g", part->loss);
    buf_add_text(out, "</td><td data-l=\"Rate\">");
    if (output_has_rate(part)) {
        count_text(part->samples_per_s, text);
        buf_printf(out, "%s/s", text);
    }
    buf_add_text(out, "</td>");
    left_text(job, text);
    put_cell("Left", text, out);
}

static void put_job(const struct cluster_job *job, int64_t now_ms, struct buf *out)
{
    const struct part_job *part = &job->part;
    int64_t from_ms = part->started_ms > 0 ? part->started_ms : part->submitted_ms;
    int64_t to_ms = part->ended_ms > 0 ? part->ended_ms : now_ms;
    char up[TEXT_BYTES], ranks[2 * TEXT_BYTES], nodes[TEXT_BYTES];

    buf_printf(out, "<tr><td data-l=\"Job\"><span><a href=\"jobs/%llu\">%llu ",
               (unsigned long long)part->job_id, (unsigned long long)part->job_id);
    html_words(part->name, out);
    buf_add_text(out, "</a></span></td>");
    put_cell("User", part->user, out);
    put_job_state(part, out);
    output_nodes_of(part, nodes);
    if (nodes[0] != '\0')
        (void)snprintf(ranks, sizeof ranks, "%s \303\227 %u", nodes, part->nproc_per_node);
    else
        (void)snprintf(ranks, sizeof ranks, "%u \303\227 %u", part->nodes, part->nproc_per_node);
    put_cell("Ranks", ranks, out);
    put_progress(job, out);
    duration_text(to_ms > from_ms ? (uint64_t)(to_ms - from_ms) * 1000 : 0, up);
    put_cell("Time", up, out);
    if (part->restarts > 0)
        (void)snprintf(ranks, sizeof ranks, "%u", part->restarts);
    put_cell("Restarts", part->restarts > 0 ? ranks : "", out);
    put_cell("Where, why", part->reason[0] != '\0' ? part->reason : part->where, out);
    buf_add_text(out, "</tr>\n");
}

static void put_jobs_head(const char *caption, struct buf *out)
{
    static const char *const columns[] = {"Job",  "User", "State", "Ranks",    "Step",      "Loss",
                                          "Rate", "Left", "Time",  "Restarts", "Where, why"};

    buf_printf(out, "<table class=\"list\"><caption>%s</caption><thead><tr>", caption);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        buf_printf(out, "<th scope=\"col\">%s</th>", columns[i]);
    buf_add_text(out, "</tr></thead><tbody>\n");
}

/* Lists the jobs that have slots first, then the queue, each sorted by number. */
static void put_jobs(const struct http_view *view, struct buf *out)
{
    const struct cluster *cluster = view->cluster;
    uint32_t shown = 0;

    buf_add_text(out, "<h2 id=\"jobs\">Jobs</h2>\n");
    if (cluster->job_count == 0) {
        buf_add_text(out, "<p class=\"note\">No jobs wait or run.</p>\n");
        return;
    }
    put_jobs_head("Jobs that run and wait", out);
    for (int queued = 0; queued < 2; queued++)
        for (uint32_t i = 0; i < cluster->job_count && shown < HTTP_JOBS_SHOWN; i++) {
            if ((cluster->jobs[i].part.state == JOB_QUEUED) != (queued == 1))
                continue;
            put_job(&cluster->jobs[i], view->now_ms, out);
            shown++;
        }
    buf_add_text(out, "</tbody></table>\n");
    if (cluster->job_count > shown)
        buf_printf(out, "<p class=\"note\">%u further jobs are not listed.</p>\n",
                   cluster->job_count - shown);
}

static void put_ended(const struct http_view *view, struct buf *out)
{
    const struct cluster *cluster = view->cluster;
    uint32_t shown = 0;

    for (uint32_t i = cluster->newest_count; i > 0 && shown < HTTP_ENDED_SHOWN; i--) {
        const struct cluster_job *job = &cluster->newest[i - 1];

        if (!job->part.ended)
            continue;
        if (shown++ == 0) {
            buf_add_text(out, "<h2 id=\"ended\">Ended</h2>\n");
            put_jobs_head("The newest jobs that have ended", out);
        }
        put_job(job, view->now_ms, out);
    }
    if (shown > 0)
        buf_add_text(out, "</tbody></table>\n");
}

/* "3: 87 %, 41 GiB, 64 C, 410 W, job 41"; for a slot without a GPU only its state. */
static void put_slot(const struct slot_gauges *slot, struct buf *out)
{
    bool is_closed = slot->state != SLOT_FREE && slot->state != SLOT_BUSY;
    char used[TEXT_BYTES];

    buf_printf(out, "<span class=\"gpu%s\"", is_closed ? " closed" : "");
    if (slot->has_gpu) {
        buf_add_text(out, " title=\"");
        html_words(slot->error[0] != '\0' ? slot->error : slot->gpu, out);
        buf_add_text(out, "\"");
    }
    buf_printf(out, ">%u:", slot->slot);
    if (!isnan(slot->utilization_percent))
        buf_printf(out, " %.0f %%", slot->utilization_percent);
    if (!isnan(slot->memory_used)) {
        bytes_text(slot->memory_used, used);
        buf_printf(out, " %s", used);
    }
    if (!isnan(slot->temperature_c))
        buf_printf(out, " %.0f &#176;C", slot->temperature_c);
    if (!isnan(slot->power_w))
        buf_printf(out, " %.0f W", slot->power_w);
    if (slot->job_id > 0)
        buf_printf(out, " <a href=\"jobs/%llu\">job %llu</a>", (unsigned long long)slot->job_id,
                   (unsigned long long)slot->job_id);
    else
        buf_printf(out, " %s", slot_state_name(slot->state));
    if (slot->error[0] != '\0' || slot->age_s > 10)
        buf_add_text(out, " <b class=\"bad\">old</b>");
    put_bar(slot->utilization_percent, out);
    buf_add_text(out, "</span>");
}

static void put_host(const struct gauges_row *row, struct buf *out)
{
    const struct node_gauges *gauges = row != NULL ? &row->gauges : NULL;
    bool is_known = row != NULL && row->is_known;
    char used[TEXT_BYTES], all[TEXT_BYTES];

    buf_add_text(out, "<td data-l=\"Load\">");
    if (is_known && !isnan(gauges->load))
        buf_printf(out, "%.1f of %.0f", gauges->load, gauges->cpus);
    buf_add_text(out, "</td><td data-l=\"Memory\">");
    if (is_known && !isnan(gauges->memory_total) && !isnan(gauges->memory_available)) {
        bytes_text(gauges->memory_total - gauges->memory_available, used);
        bytes_text(gauges->memory_total, all);
        buf_printf(out, "%s of %s", used, all);
    }
    buf_add_text(out, "</td><td data-l=\"Log disk\">");
    if (is_known && !isnan(gauges->disk_free)) {
        bytes_text(gauges->disk_free, used);
        buf_printf(out, "%s free", used);
    }
    buf_add_text(out, "</td>");
}

static void put_slots(const struct cluster_node *node, const struct gauges_row *row,
                      struct buf *out)
{
    buf_add_text(out, "<td data-l=\"Slots\"><span class=\"gpus\">");
    if (row != NULL && row->is_known)
        for (uint32_t i = 0; i < row->gauges.slot_count; i++)
            put_slot(&row->gauges.slots[i], out);
    else
        buf_printf(out, "%u, %u free", node->part.slots, node->part.slots_free);
    buf_add_text(out, "</span></td>");
}

static void put_reasons(const struct cluster_node *node, const struct gauges_row *row,
                        struct buf *out)
{
    buf_add_text(out, "<td data-l=\"Why\">");
    if (node->part.drained) {
        buf_add_text(out, "<span>drained by ");
        html_words(node->part.drained_by, out);
        buf_add_text(out, ": ");
        html_words(node->part.drain_reason, out);
        buf_add_text(out, "</span> ");
    }
    for (uint32_t i = 0; i < node->closed_count; i++) {
        const struct part_slot *slot = &node->closed[i];

        buf_printf(out, "<span>slot %u %s: ", slot->slot, slot_state_name(slot->state));
        html_words(slot->reason, out);
        buf_add_text(out, "</span> ");
    }
    if (node->part.state != NODE_LOST && row != NULL)
        html_words(row->problem, out);
    buf_add_text(out, "</td></tr>\n");
}

static void put_node(const struct cluster_node *node, const struct gauges_row *row, struct buf *out)
{
    bool is_up = node->part.state == NODE_UP && !node->part.drained;

    buf_add_text(out, "<tr>");
    put_cell("Node", node->part.name, out);
    buf_printf(out, "<td data-l=\"State\"><span class=\"%s\">%s%s</span></td>",
               is_up ? "good" : "bad", output_node_state(&node->part),
               node->part.drained ? ", drained" : "");
    put_host(row, out);
    put_slots(node, row, out);
    put_reasons(node, row, out);
}

static void put_pages(uint32_t page, uint32_t pages, struct buf *out)
{
    if (pages < 2)
        return;
    buf_printf(out, "<p class=\"note\">Page %u of %u.", page, pages);
    if (page > 1)
        buf_printf(out, " <a href=\"./?page=%u#nodes\">earlier</a>", page - 1);
    if (page < pages)
        buf_printf(out, " <a href=\"./?page=%u#nodes\">later</a>", page + 1);
    buf_add_text(out, "</p>\n");
}

static void put_nodes(const struct http_index *index, struct buf *out)
{
    const struct cluster *cluster = index->view.cluster;
    uint32_t pages = (cluster->node_count + HTTP_NODES_SHOWN - 1) / HTTP_NODES_SHOWN;
    uint32_t page = index->page > pages && pages > 0 ? pages : index->page;
    uint32_t first = (page - 1) * HTTP_NODES_SHOWN;

    buf_add_text(out, "<h2 id=\"nodes\">Nodes</h2>\n");
    if (cluster->node_count == 0) {
        buf_add_text(out, "<p class=\"note\">No node was ever connected.</p>\n");
        return;
    }
    put_pages(page, pages, out);
    buf_add_text(out, "<table class=\"list\"><caption>Nodes and their slots, by name</caption>"
                      "<thead><tr><th scope=\"col\">Node</th><th scope=\"col\">State</th>"
                      "<th scope=\"col\">Load</th><th scope=\"col\">Memory</th>"
                      "<th scope=\"col\">Log disk</th><th scope=\"col\">Slots</th>"
                      "<th scope=\"col\">Why</th></tr></thead><tbody>\n");
    for (uint32_t i = first; i < cluster->node_count && i < first + HTTP_NODES_SHOWN; i++)
        put_node(&cluster->nodes[i],
                 gauges_table_find(index->view.gauges, cluster->nodes[i].part.name), out);
    buf_add_text(out, "</tbody></table>\n");
    put_pages(page, pages, out);
}

static void put_sums(const struct http_view *view, struct buf *out)
{
    const struct cluster *cluster = view->cluster;
    const struct cluster_sums sums = cluster_sums(cluster);
    char text[TEXT_BYTES];

    buf_printf(out,
               "<p class=\"sums\"><span><b>%u</b> running</span><span><b>%u</b> waiting</span>"
               "<span><b>%u</b> of %u nodes up</span><span><b>%u</b> of %u slots free</span>",
               cluster->job_count - cluster->jobs_by_state[JOB_QUEUED],
               cluster->jobs_by_state[JOB_QUEUED], sums.up, cluster->node_count, sums.free_slots,
               sums.slots);
    if (cluster->server.is_known) {
        duration_text(cluster->server.info.up_us, text);
        buf_printf(out, "<span>server up for <b>%s</b></span>", text);
    }
    buf_add_text(out, "</p>\n");
    if (cluster->server.is_known && cluster->server.info.store_is_low)
        buf_add_text(out, "<p class=\"lost\">The server's disk is nearly full: it takes no new "
                          "jobs.</p>\n");
}

void http_index_write(const struct http_index *index, struct buf *out)
{
    const struct http_view *view = &index->view;
    char text[TEXT_BYTES];

    put_head("ddp jobs and nodes", "", index->refresh_s, out);
    buf_add_text(out, "<h1>Jobs and nodes</h1>\n");
    if (view->lost_why[0] != '\0' || view->cluster->taken_us == 0) {
        buf_add_text(out, "<p class=\"lost\">The server does not answer: ");
        html_words(view->lost_why[0] != '\0' ? view->lost_why : "not reached yet", out);
        buf_add_text(out, view->cluster->taken_us > 0 ? ". What follows is old.</p>\n" : ".</p>\n");
    }
    if (view->cluster->taken_us > 0) {
        put_sums(view, out);
        put_jobs(view, out);
        put_nodes(index, out);
        put_ended(view, out);
    }
    buf_add_text(out, "</main>\n<footer>");
    html_words(index->server, out);
    if (view->cluster->taken_us > 0) {
        time_text(view->cluster->wall_ms, text);
        buf_printf(out, ", as of %.10s %.8s UTC", text, text + 11);
    }
    buf_add_text(out, "; <a href=\"metrics\">metrics</a></footer></body></html>\n");
}
