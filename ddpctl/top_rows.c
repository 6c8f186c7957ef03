#include "ddpctl/top_rows.h"

#include <math.h>
#include <stdio.h>

#include "ddpctl/job_lines.h"
#include "ddpctl/output.h"
#include "ddpctl/units.h"

const struct node_gauges *top_gauges(const struct top_view *view, const char *node)
{
    const struct gauges_row *row = gauges_table_find(view->gauges, node);

    return row != NULL && row->is_known ? &row->gauges : NULL;
}

static void bytes_text(double bytes, char text[TEXT_BYTES])
{
    if (isnan(bytes))
        (void)snprintf(text, TEXT_BYTES, "-");
    else if (bytes < 10.0 * 1024 * 1024 * 1024)
        (void)snprintf(text, TEXT_BYTES, "%.1fG", bytes / (1024.0 * 1024 * 1024));
    else
        (void)snprintf(text, TEXT_BYTES, "%.0fG", bytes / (1024.0 * 1024 * 1024));
}

/* A number with a unit, or "-". */
static void known_text(double value, const char *unit, char text[TEXT_BYTES])
{
    if (isnan(value))
        (void)snprintf(text, TEXT_BYTES, "-");
    else
        (void)snprintf(text, TEXT_BYTES, "%.0f%s", value, unit);
}

static const char *job_color(enum job_state state)
{
    switch (state) {
    case JOB_RUNNING:
    case JOB_SUCCEEDED:
        return TOP_GREEN;
    case JOB_QUEUED:
    case JOB_STARTING:
        return TOP_YELLOW;
    case JOB_RESTARTING:
    case JOB_FAILED:
    case JOB_CANCELLED:
        return TOP_RED;
    }
    return "";
}

static void left_text(const struct cluster_job *job, char text[TEXT_BYTES])
{
    const struct part_job *part = &job->part;
    double left_us;

    (void)snprintf(text, TEXT_BYTES, "-");
    if (isnan(job->steps_per_s) || job->steps_per_s <= 0 || part->steps <= part->step)
        return;
    left_us = (double)(part->steps - part->step) / job->steps_per_s * 1e6;
    if (left_us < (double)DURATION_US_MAX)
        duration_text((uint64_t)left_us, text);
}

static void put_progress(struct top_lines *lines, const struct cluster_job *job)
{
    const struct part_job *part = &job->part;
    char step[TEXT_BYTES], text[TEXT_BYTES];

    count_text((double)part->step, step);
    top_cell(lines, -6, part->step > 0 ? step : "-");
    if (part->steps > 0)
        top_cellf(lines, -4, "%.0f%%", floor(100 * (double)part->step / (double)part->steps));
    else
        top_cell(lines, -4, "-");
    (void)snprintf(text, sizeof text, fabs(part->loss) < 1000 ? "%.4f" : "%.2g", part->loss);
    top_cell(lines, -8, part->step > 0 ? text : "-");
    count_text(part->samples_per_s, text);
    (void)snprintf(step, sizeof step, "%.30s/s", text);
    top_cell(lines, -8, output_has_rate(part) ? step : "-");
    left_text(job, text);
    top_cell(lines, -6, text);
}

static const char *line_style(const struct top_view *view, bool is_chosen)
{
    return is_chosen && view->is_terminal ? TOP_REVERSE : "";
}

void top_row_job(struct top_lines *lines, const struct top_view *view,
                 const struct cluster_job *job, bool is_chosen)
{
    const struct part_job *part = &job->part;
    int64_t from_ms = part->started_ms > 0 ? part->started_ms : part->submitted_ms;
    char up[TEXT_BYTES];

    if (!top_line_begin(lines, line_style(view, is_chosen)))
        return;
    duration_text(
        from_ms > 0 && view->now_ms > from_ms ? (uint64_t)(view->now_ms - from_ms) * 1000 : 0, up);
    top_cellf(lines, -5, "%llu", (unsigned long long)part->job_id);
    top_cell(lines, 14, part->name);
    top_cell(lines, 8, part->user);
    top_cell_in(lines, 10, job_color(part->state), job_state_name(part->state));
    top_cellf(lines, -5, "%u", part->nodes * part->nproc_per_node);
    put_progress(lines, job);
    top_cell(lines, -6, up);
    if (part->restarts > 0)
        top_cellf(lines, 0, "%u restart%s,", part->restarts, part->restarts == 1 ? "" : "s");
    top_cell(lines, 0,
             part->reason[0] != '\0'      ? part->reason
             : part->straggler[0] != '\0' ? part->straggler
                                          : part->where);
    top_line_end(lines);
}

void top_row_jobs_head(struct top_lines *lines)
{
    if (!top_line_begin(lines, TOP_BOLD))
        return;
    top_cell(lines, -5, "JOB");
    top_cell(lines, 14, "NAME");
    top_cell(lines, 8, "USER");
    top_cell(lines, 10, "STATE");
    top_cell(lines, -5, "RANKS");
    top_cell(lines, -6, "STEP");
    top_cell(lines, -4, "%");
    top_cell(lines, -8, "LOSS");
    top_cell(lines, -8, "RATE");
    top_cell(lines, -6, "LEFT");
    top_cell(lines, -6, "TIME");
    top_cell(lines, 0, "WHERE, WHY");
    top_line_end(lines);
}

/* "87 3 - 99": the utilization of each GPU in percent; "x": its slot is closed. */
static void put_gpus(struct top_lines *lines, const struct node_gauges *gauges)
{
    for (uint32_t i = 0; gauges != NULL && i < gauges->slot_count; i++) {
        const struct slot_gauges *slot = &gauges->slots[i];
        bool is_closed = slot->state != SLOT_FREE && slot->state != SLOT_BUSY;
        char text[TEXT_BYTES];

        if (!slot->has_gpu)
            continue;
        known_text(slot->utilization_percent, "", text);
        top_cell_in(lines, -3, is_closed ? TOP_RED : "", is_closed ? "x" : text);
    }
}

static void put_trouble(struct top_lines *lines, const struct top_view *view,
                        const struct cluster_node *node)
{
    const struct gauges_row *row = gauges_table_find(view->gauges, node->part.name);

    if (node->part.drained)
        top_cellf(lines, 0, "drained by %s: %s", node->part.drained_by, node->part.drain_reason);
    for (uint32_t i = 0; i < node->closed_count; i++)
        top_cellf(lines, 0, "slot %u %s: %s;", node->closed[i].slot,
                  slot_state_name(node->closed[i].state), node->closed[i].reason);
    if (node->part.state != NODE_LOST && row != NULL && row->problem[0] != '\0')
        top_cell(lines, 0, row->problem);
}

void top_row_node(struct top_lines *lines, const struct top_view *view,
                  const struct cluster_node *node, bool is_chosen)
{
    const struct node_gauges *gauges = top_gauges(view, node->part.name);
    char text[TEXT_BYTES], all[TEXT_BYTES];

    if (!top_line_begin(lines, line_style(view, is_chosen)))
        return;
    top_cell(lines, 20, node->part.name);
    top_cell_in(lines, 7, node->part.state == NODE_UP ? TOP_GREEN : TOP_RED,
                output_node_state(&node->part));
    top_cellf(lines, -6, "%u/%u", node->part.state == NODE_LOST ? 0 : node->part.slots_free,
              node->part.slots);
    if (gauges != NULL && !isnan(gauges->load))
        top_cellf(lines, -6, "%.1f", gauges->load);
    else
        top_cell(lines, -6, "-");
    known_text(gauges != NULL ? gauges->cpu_percent : (double)NAN, "%", text);
    top_cell(lines, -4, text);
    bytes_text(gauges != NULL ? gauges->memory_total - gauges->memory_available : (double)NAN,
               text);
    bytes_text(gauges != NULL ? gauges->memory_total : (double)NAN, all);
    top_cellf(lines, -11, "%.20s/%.15s", text, all);
    put_gpus(lines, gauges);
    put_trouble(lines, view, node);
    top_line_end(lines);
}

void top_row_nodes_head(struct top_lines *lines)
{
    if (!top_line_begin(lines, TOP_BOLD))
        return;
    top_cell(lines, 20, "NODE");
    top_cell(lines, 7, "STATE");
    top_cell(lines, -6, "FREE");
    top_cell(lines, -6, "LOAD");
    top_cell(lines, -4, "CPU");
    top_cell(lines, -11, "MEMORY");
    top_cell(lines, 0, "GPUS, % / WHY");
    top_line_end(lines);
}

void top_row_sentence(struct top_lines *lines, const char *style, const char *text)
{
    if (!top_line_begin(lines, style))
        return;
    top_cell(lines, 0, text);
    top_line_end(lines);
}

static void put_slot_gauges(struct top_lines *lines, const struct slot_gauges *slot)
{
    char text[TEXT_BYTES], all[TEXT_BYTES];

    if (slot == NULL || !slot->has_gpu)
        return;
    known_text(slot->utilization_percent, "%", text);
    top_cell(lines, -5, text);
    bytes_text(slot->memory_used, text);
    bytes_text(slot->memory_total, all);
    top_cellf(lines, -11, "%.20s/%.15s", text, all);
    known_text(slot->temperature_c, "C", text);
    top_cell(lines, -5, text);
    known_text(slot->power_w, "W", text);
    top_cell(lines, -6, text);
    if (slot->error[0] != '\0')
        top_cell_in(lines, 0, TOP_RED, slot->error);
    else if (slot->age_s > 10)
        top_cellf(lines, 0, "%.0f s ago", slot->age_s);
    else
        top_cell(lines, 0, slot->gpu);
}

static void put_slot_heads(struct top_lines *lines)
{
    top_cell(lines, -5, "GPU");
    top_cell(lines, -11, "MEMORY");
    top_cell(lines, -5, "TEMP");
    top_cell(lines, -6, "POWER");
    top_line_end(lines);
}

void top_row_rank(struct top_lines *lines, const struct top_view *view,
                  const struct part_job_rank *rank, bool is_chosen)
{
    const struct node_gauges *gauges = top_gauges(view, rank->node);
    bool is_bad = rank->state == RANK_LOST ||
                  (rank->state == RANK_EXITED && (rank->exit_code != 0 || rank->signal != 0));
    char end[TEXT_BYTES] = "-";

    if (!top_line_begin(lines, line_style(view, is_chosen)))
        return;
    if (rank->signal != 0)
        signal_text(rank->signal, end);
    else if (rank->state == RANK_EXITED || rank->state == RANK_STOPPED)
        (void)snprintf(end, sizeof end, "%d", rank->exit_code);
    top_cellf(lines, -5, "%u", rank->rank);
    top_cell(lines, 20, rank->node);
    top_cellf(lines, -4, "%u", rank->slot);
    top_cellf(lines, -8, "%u", rank->pid);
    top_cell_in(lines, 8, is_bad ? TOP_RED : "", rank_state_name(rank->state));
    top_cell(lines, 8, end);
    if (rank->state == RANK_RUNNING && gauges != NULL && rank->slot < gauges->slot_count)
        put_slot_gauges(lines, &gauges->slots[rank->slot]);
    top_line_end(lines);
}

void top_row_job_facts(const struct top_view *view, struct top_lines *lines)
{
    const struct part_job *part = &view->job->jobs.items[0];
    const struct cluster_job *known = cluster_find_job(view->cluster, part->job_id);
    const struct cluster_job job = {
        .part = *part, .steps_per_s = known != NULL ? known->steps_per_s : (double)NAN};
    char id[JOB_LINE_ID_BYTES];

    job_line_id(part, id);
    if (top_line_begin(lines, TOP_BOLD)) {
        top_cellf(lines, 0, "%s (%s) of %s:", part->name, id, part->user);
        top_cell_in(lines, 0, job_color(part->state), job_state_name(part->state));
        top_cellf(lines, 0, "generation %u, %u of %u ranks run, %u restart%s", part->generation,
                  part->ranks_running, part->nodes * part->nproc_per_node, part->restarts,
                  part->restarts == 1 ? "" : "s");
        top_line_end(lines);
    }
    if (top_line_begin(lines, "")) {
        top_cell(lines, 0, "step, %, loss, rate, left:");
        put_progress(lines, &job);
        top_line_end(lines);
    }
    top_row_sentence(lines, "", part->reason[0] != '\0' ? part->reason : part->where);
}

void top_row_slot(struct top_lines *lines, const struct top_view *view,
                  const struct slot_gauges *slot, bool is_chosen)
{
    if (!top_line_begin(lines, line_style(view, is_chosen)))
        return;
    top_cellf(lines, -4, "%u", slot->slot);
    top_cell_in(lines, 11, slot->state == SLOT_FREE || slot->state == SLOT_BUSY ? "" : TOP_RED,
                slot_state_name(slot->state));
    if (slot->job_id > 0) {
        top_cellf(lines, -6, "%llu", (unsigned long long)slot->job_id);
        top_cellf(lines, -5, "%u", slot->rank);
    } else {
        top_cell(lines, -6, "-");
        top_cell(lines, -5, "-");
    }
    put_slot_gauges(lines, slot);
    top_line_end(lines);
}

void top_row_ranks_head(struct top_lines *lines)
{
    if (top_line_begin(lines, TOP_BOLD)) {
        top_cell(lines, -5, "RANK");
        top_cell(lines, 20, "NODE");
        top_cell(lines, -4, "SLOT");
        top_cell(lines, -8, "PID");
        top_cell(lines, 8, "STATE");
        top_cell(lines, 8, "EXIT");
        put_slot_heads(lines);
    }
}

void top_row_slots_head(struct top_lines *lines)
{
    if (top_line_begin(lines, TOP_BOLD)) {
        top_cell(lines, -4, "SLOT");
        top_cell(lines, 11, "STATE");
        top_cell(lines, -6, "JOB");
        top_cell(lines, -5, "RANK");
        put_slot_heads(lines);
    }
}
