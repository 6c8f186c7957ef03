#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/escape.h"
#include "ddpctl/job_lines.h"
#include "ddpctl/output.h"
#include "ddpctl/output_table.h"
#include "ddpctl/units.h"

static const char *state_color(enum job_state state)
{
    switch (state) {
    case JOB_QUEUED:
    case JOB_STARTING:
        return "\x1b[33m";
    case JOB_RUNNING:
    case JOB_SUCCEEDED:
        return "\x1b[32m";
    case JOB_RESTARTING:
    case JOB_FAILED:
        return "\x1b[31m";
    case JOB_CANCELLED:
        return "\x1b[35m";
    }
    return "";
}

void output_nodes_of(const struct part_job *job, char text[TEXT_BYTES])
{
    const bool has_nodes = job->state != JOB_QUEUED && job->state != JOB_RESTARTING;
    const int used = has_nodes ? snprintf(text, TEXT_BYTES, "%u of ", job->nodes) : 0;

    if (job->nodes_min < job->nodes_max)
        (void)snprintf(text + used, TEXT_BYTES - (size_t)used, "%u:%u nodes", job->nodes_min,
                       job->nodes_max);
    else
        text[0] = '\0';
}

static void up_text(const struct part_job *job, int64_t now_ms, char text[TEXT_BYTES])
{
    int64_t from_ms = job->started_ms ? job->started_ms : job->submitted_ms;
    int64_t to_ms = job->ended_ms ? job->ended_ms : now_ms;

    duration_text(to_ms > from_ms ? (uint64_t)(to_ms - from_ms) * 1000 : 0, text);
}

static bool has_progress(const struct part_job *job)
{
    return job->step > 0 || job->epoch > 0 || job->samples_per_s > 0;
}

bool output_progress_is_old(const struct part_job *job)
{
    return !job->ended && job->progress_generation != 0 &&
           job->progress_generation < job->generation;
}

bool output_has_rate(const struct part_job *job)
{
    return job->samples_per_s > 0 && !output_progress_is_old(job);
}

static void progress_cell(struct output_table *table, const struct part_job *job)
{
    char step[TEXT_BYTES], steps[TEXT_BYTES];

    count_text((double)job->step, step);
    count_text((double)job->steps, steps);
    if (!has_progress(job))
        output_cell(table, "-");
    else if (job->steps > 0)
        output_cell(table, "%s/%s %3.0f%%", step, steps,
                    (double)job->step * 100 / (double)job->steps);
    else
        output_cell(table, "%s", step);
}

static void job_row(struct output_table *table, const struct job_line *line, int64_t now_ms)
{
    const struct part_job *job = &line->job;
    char text[TEXT_BYTES];

    output_cell(table, "%s", line->id);
    output_cell(table, "%s", job->name);
    output_cell(table, "%s", job_state_name(job->state));
    output_nodes_of(job, text);
    output_cell(table, "%u/%u%s%s", job->ranks_running, job->nodes * job->nproc_per_node,
                text[0] != '\0' ? ", " : "", text);
    output_cell(table, "%s", job->where);
    progress_cell(table, job);
    count_text(job->samples_per_s, text);
    if (output_has_rate(job))
        output_cell(table, "%s/s", text);
    else
        output_cell(table, "-");
    if (has_progress(job))
        output_cell(table, "%.3g", job->loss);
    else
        output_cell(table, "-");
    up_text(job, now_ms, text);
    output_cell(table, "%s", text);
    output_cell(table, "%s", job->reason);
}

void output_jobs(const struct msg_jobs *jobs, const struct output_style *style, struct buf *out)
{
    static const char *const heads[] = {"ID",       "NAME", "STATE", "RANKS", "WHERE",
                                        "PROGRESS", "RATE", "LOSS",  "UP",    "NOTE"};
    struct output_table table = {.columns = sizeof heads / sizeof heads[0], .right = "rllrllrrrl"};
    struct job_line *lines = malloc(jobs->jobs.count * sizeof *lines + 1);
    const char **colors = malloc(jobs->jobs.count * sizeof *colors + 1);
    uint32_t count = 0;

    out->failed = out->failed || lines == NULL || colors == NULL;
    if (lines != NULL && colors != NULL)
        count = job_lines_make(jobs->jobs.items, jobs->jobs.count, style->folds_arrays, lines);
    for (size_t i = 0; i < table.columns; i++)
        output_cell(&table, "%s", heads[i]);
    for (uint32_t i = 0; i < count; i++) {
        job_row(&table, &lines[i], style->now_ms);
        colors[i] = state_color(lines[i].job.state);
    }
    output_table_write(&table, style->color ? colors : NULL, 2, out);
    free(lines);
    free(colors);
}

void output_progress(const struct part_job *job, struct buf *out)
{
    char step[TEXT_BYTES], steps[TEXT_BYTES], rate[TEXT_BYTES];

    if (!has_progress(job))
        return;
    count_text((double)job->step, step);
    count_text((double)job->steps, steps);
    count_text(job->samples_per_s, rate);
    if (job->epochs > 0)
        buf_printf(out, "epoch %u/%u  ", job->epoch, job->epochs);
    else if (job->epoch > 0)
        buf_printf(out, "epoch %u  ", job->epoch);
    buf_printf(out, "step %s", step);
    if (job->steps > 0)
        buf_printf(out, "/%s  %.0f%%", steps, (double)job->step * 100 / (double)job->steps);
    buf_printf(out, "  loss %.4f  %s/s", job->loss, rate);
    if (output_progress_is_old(job))
        buf_printf(out, "  (of generation %u, the newest that told any)", job->progress_generation);
}

static void count_of(uint32_t count, const char *noun, struct buf *out)
{
    buf_printf(out, "%u %s%s", count, noun, count == 1 ? "" : "s");
}

void output_verdict(const struct msg_job_info *info, struct buf *out)
{
    const struct part_job *job = &info->jobs.items[0];
    char id[JOB_LINE_ID_BYTES];

    assert(info->jobs.count == 1);
    job_line_id(job, id);
    buf_printf(out, "%s (%s) %s", job->name, id, job_state_name(job->state));
    if (job->ended && job->state == JOB_SUCCEEDED) {
        char text[TEXT_BYTES];

        up_text(job, job->ended_ms, text);
        buf_printf(out, " after %s", text);
        if (job->restarts > 0) {
            buf_add_text(out, ", ");
            count_of(job->restarts, "restart", out);
        }
    } else if (job->reason[0] && strcmp(job->reason, job_state_name(job->state)) != 0) {
        buf_add_text(out, ": ");
        escape_text(job->reason, strlen(job->reason), out);
    }
}

void output_turn(const struct output_turn *turn, struct buf *out)
{
    const char *verb = turn->checkpoint_step > 0 ? "resume" : "start";

    assert(turn->generation > 0);
    escape_text(turn->cause, strlen(turn->cause), out); /* of the generation before */
    buf_printf(out, "%sgeneration %u: ", turn->cause[0] ? "; " : "", turn->generation);
    count_of(turn->world, "rank", out);
    buf_printf(out, " %s%s", verb, turn->world == 1 ? "s" : "");
    if (turn->checkpoint_step > 0)
        buf_printf(out, " at step %llu", (unsigned long long)turn->checkpoint_step);
    else
        buf_add_text(out, " again");
}

void output_submitted(const struct msg_submit *submit, uint64_t job_id, bool is_new,
                      const char *server, struct buf *out)
{
    const bool is_elastic = submit->nodes_min > 0 && submit->nodes_min < submit->nodes;
    unsigned long long id = job_id;
    char ddpctl[512] = "ddpctl";

    if (server)
        (void)snprintf(ddpctl, sizeof ddpctl, "ddpctl --server %s", server);
    buf_printf(out, "queued %s: ", submit->name);
    if (submit->array[0] != '\0')
        buf_printf(out, "array %s, each with ", submit->array);
    if (is_elastic)
        buf_printf(out, "%u to ", submit->nodes_min * submit->nproc_per_node);
    count_of(submit->nodes * submit->nproc_per_node, "rank", out);
    buf_add_text(out, " on ");
    if (is_elastic)
        buf_printf(out, "%u to ", submit->nodes_min);
    count_of(submit->nodes, "node", out);
    if (submit->max_restarts == 0) {
        buf_add_text(out, ", no restarts");
    } else {
        buf_add_text(out, ", up to ");
        count_of(submit->max_restarts, "restart", out);
    }
    buf_add_text(out, is_new ? "\n" : " (it was there already)\n");
    if (submit->array[0] != '\0')
        buf_printf(out, "  jobs  %s status %llu     stop all  %s cancel %llu\n", ddpctl, id, ddpctl,
                   id);
    else
        buf_printf(
            out, "  logs  %s logs -f %llu     watch  %s status -w %llu     stop  %s cancel %llu\n",
            ddpctl, id, ddpctl, id, ddpctl, id);
}

static void command_line(const struct msg_job_info *info, struct buf *out)
{
    if (info->argv.count == 0)
        return;
    buf_add_text(out, "  command    ");
    for (uint32_t i = 0; i < info->argv.count; i++) {
        const char *word = info->argv.items[i];
        bool is_plain =
            *word &&
            word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "_-./=:,@%+")] == '\0';

        buf_add_text(out, i == 0 ? "" : " ");
        buf_add_text(out, is_plain ? "" : "'");
        escape_text(word, strlen(word), out);
        buf_add_text(out, is_plain ? "" : "'");
    }
    buf_add_text(out, "   (in ");
    escape_text(info->cwd, strlen(info->cwd), out);
    buf_add_text(out, ")\n");
}

static void times_line(const struct part_job *job, int64_t now_ms, struct buf *out)
{
    char text[TEXT_BYTES], up[TEXT_BYTES];

    time_text(job->submitted_ms, text);
    buf_printf(out, "  submitted  %s by %s", text, job->user[0] ? job->user : "?");
    up_text(job, now_ms, up);
    if (job->started_ms) {
        time_text(job->started_ms, text);
        buf_printf(out, ", started %s", text);
    }
    buf_printf(out, ", %s %s\n", job->ended ? "took" : job->started_ms ? "up" : "waits for", up);
}

static void exit_cell(struct output_table *table, const struct part_job_rank *rank)
{
    char text[TEXT_BYTES];

    signal_text(rank->signal, text);
    if (rank->state == RANK_RUNNING || rank->state == RANK_WAITING || rank->state == RANK_LOST)
        output_cell(table, "-");
    else if (rank->signal)
        output_cell(table, "%s", text);
    else
        output_cell(table, "%d", rank->exit_code);
}

static void ranks_table(const struct msg_job_info *info, struct buf *out)
{
    static const char *const heads[] = {"RANK", "LOCAL", "NODE", "SLOT", "PID", "STATE", "EXIT"};
    struct output_table table = {.columns = sizeof heads / sizeof heads[0], .right = "rrlrrll"};

    for (size_t i = 0; i < table.columns; i++)
        output_cell(&table, "%s", heads[i]);
    for (uint32_t i = 0; i < info->ranks.count; i++) {
        const struct part_job_rank *rank = &info->ranks.items[i];

        output_cell(&table, "%u", rank->rank);
        output_cell(&table, "%u", rank->local_rank);
        output_cell(&table, "%s", rank->node);
        output_cell(&table, "%u", rank->slot);
        if (rank->pid)
            output_cell(&table, "%u", rank->pid);
        else
            output_cell(&table, "-");
        output_cell(&table, "%s", rank_state_name(rank->state));
        exit_cell(&table, rank);
    }
    output_table_write(&table, NULL, 0, out);
}

/* The command that shows the logs of the rank that failed first, in the generation of that failure.
 * After success, or if no rank is known to have failed: the logs of the job. */
static void crash_command(const struct msg_job_info *info, struct buf *out)
{
    const struct part_job *job = &info->jobs.items[0];

    buf_printf(out, "ddpctl logs %llu", (unsigned long long)job->job_id);
    if (job->state == JOB_SUCCEEDED)
        return;
    if (info->crashed_generation > 0 && info->crashed_generation != job->generation)
        buf_printf(out, " -g %u", info->crashed_generation);
    if (info->crashed_generation > 0)
        buf_printf(out, " --rank %u", info->crashed_rank);
    else if (info->failed_rank >= 0) /* no failure is kept: version 1 stored the job */
        buf_printf(out, " --rank %d", info->failed_rank);
}

static void next_commands(const struct msg_job_info *info, struct buf *out)
{
    const struct part_job *job = &info->jobs.items[0];
    unsigned long long id = job->job_id;

    if (!job->ended && info->crashed_generation > 0) {
        buf_add_text(out, "  crashed    ");
        crash_command(info, out);
        buf_add_text(out, "\n");
    }
    buf_add_text(out, "  next       ");
    if (job->ended)
        crash_command(info, out);
    else
        buf_printf(out, "ddpctl logs -f %llu     ddpctl cancel %llu", id, id);
    buf_add_text(out, "\n");
}

static void head_line(const struct part_job *job, const struct output_style *style, struct buf *out)
{
    char nodes[TEXT_BYTES], id[JOB_LINE_ID_BYTES];

    output_nodes_of(job, nodes);
    job_line_id(job, id);
    buf_printf(out, "%s (%s) %s%s%s", job->name, id, style->color ? state_color(job->state) : "",
               job_state_name(job->state), style->color ? "\x1b[0m" : "");
    if (job->where[0])
        buf_printf(out, " on %s", job->where);
    if (job->ended)
        buf_printf(out, ", exit %d", job->exit_code);
    else
        buf_printf(out, ", %u of %u ranks", job->ranks_running, job->nodes * job->nproc_per_node);
    buf_printf(out, "%s%s", nodes[0] != '\0' ? ", " : "", nodes);
    buf_printf(out, ", generation %u, %u of %u restarts used", job->generation,
               job->restarts_without_progress, job->max_restarts);
    if (job->restarts > job->restarts_without_progress)
        buf_printf(out, " (%u in all)", job->restarts);
    buf_add_text(out, "\n");
}

void output_status(const struct msg_job_info *info, const struct output_style *style,
                   struct buf *out)
{
    const struct part_job *job = &info->jobs.items[0];

    assert(info->jobs.count == 1);
    head_line(job, style, out);
    if (style->why != NULL) {
        buf_printf(out, "  why        %s\n             more: ddpctl why %llu\n", style->why,
                   (unsigned long long)job->job_id);
    }
    if (job->reason[0] && (style->why == NULL || !job->ended)) {
        buf_add_text(out, "  reason     ");
        escape_text(job->reason, strlen(job->reason), out);
        buf_add_text(out, "\n");
    }
    command_line(info, out);
    times_line(job, style->now_ms, out);
    if (has_progress(job)) {
        buf_add_text(out, "  progress   ");
        output_progress(job, out);
        if (job->checkpoint_step > 0)
            buf_printf(out, "  checkpoint at step %llu", (unsigned long long)job->checkpoint_step);
        buf_add_text(out, "\n");
    }
    if (job->straggler[0]) {
        buf_add_text(out, "  straggler  ");
        escape_text(job->straggler, strlen(job->straggler), out);
        buf_add_text(out, "\n");
    }
    if (job->spares > 0 && !job->ended)
        buf_printf(out, "  spares     %u of %u nodes held, %u warm\n", job->spares_held,
                   job->spares, job->spares_warm);
    if (info->failed_rank >= 0) {
        buf_printf(out, "  failed     rank %d on %s%s\n", info->failed_rank, info->failed_node,
                   info->tail[0] ? ", its last lines:" : "");
        escape_last_lines(info->tail, strlen(info->tail), 5, out);
    }
    next_commands(info, out);
    if (info->ranks.count > 0) {
        buf_add_text(out, "\n");
        ranks_table(info, out);
    }
}

const char *output_node_state(const struct part_node *node)
{
    return node->refused_ms != 0 && node->state != NODE_UP ? "refused"
                                                           : node_state_name(node->state);
}

static void node_row(struct output_table *table, const struct part_node *node)
{
    uint32_t open = node->slots_free + node->slots_closed;
    char age[TEXT_BYTES];

    duration_text(node->beat_age_us > 0 ? (uint64_t)node->beat_age_us : 0, age);
    output_cell(table, "%s", node->name);
    output_cell(table, "%s%s", output_node_state(node), node->drained ? ", drained" : "");
    output_cell(table, "%u/%u", node->slots > open ? node->slots - open : 0, node->slots);
    output_cell(table, "%u", node->slots_closed);
    output_cell(table, "%u", node->gpus);
    output_cell(table, "%s", node->address);
    if (node->beat_age_us < 0)
        output_cell(table, "never");
    else
        output_cell(table, "%s ago", age);
    output_cell(table, "%s", node->version);
}

static bool is_drained_whole(const struct msg_nodes *nodes, const char *name)
{
    for (uint32_t i = 0; i < nodes->nodes.count; i++)
        if (strcmp(nodes->nodes.items[i].name, name) == 0)
            return nodes->nodes.items[i].drained;
    return false;
}

/* "gpu01 slot 3 quarantined: pid 4711 ..." */
static void closed_line(const struct part_slot *slot, struct buf *out)
{
    buf_printf(out, "%s slot %u %s", slot->node, slot->slot, slot_state_name(slot->state));
    if (slot->drained_by[0])
        buf_printf(out, " by %s", slot->drained_by);
    buf_add_text(out, slot->reason[0] ? ": " : "");
    escape_text(slot->reason, strlen(slot->reason), out);
    buf_add_text(out, "\n");
}

static void drained_line(const struct part_node *node, struct buf *out)
{
    buf_printf(out, "%s drained by %s: ", node->name, node->drained_by);
    escape_text(node->drain_reason, strlen(node->drain_reason), out);
    buf_add_text(out, "\n");
}

/* What is wrong with the node, such as another one that wants its name. */
static void notice_line(const struct part_node *node, struct buf *out)
{
    char since[TEXT_BYTES];

    if (node->notice == NULL || node->notice[0] == '\0')
        return;
    buf_printf(out, "%s: ", node->name);
    time_text(node->refused_ms, since);
    if (node->refused_ms != 0)
        buf_printf(out, "%srefused since %s: ",
                   node->state == NODE_UP ? "another launcherd of this name is " : "", since);
    escape_text(node->notice, strlen(node->notice), out);
    buf_add_text(out, "\n");
}

/* The lines below the table: what is wrong with nodes, and why nodes and slots are out of use. */
static void closed_lines(const struct msg_nodes *nodes, struct buf *out)
{
    for (uint32_t i = 0; i < nodes->nodes.count; i++)
        notice_line(&nodes->nodes.items[i], out);
    for (uint32_t i = 0; i < nodes->nodes.count; i++)
        if (nodes->nodes.items[i].drained)
            drained_line(&nodes->nodes.items[i], out);
    for (uint32_t i = 0; i < nodes->slots.count; i++)
        if (!is_drained_whole(nodes, nodes->slots.items[i].node))
            closed_line(&nodes->slots.items[i], out);
}

static void nodes_table(const struct msg_nodes *nodes, const struct output_style *style,
                        struct buf *out)
{
    static const char *const heads[] = {"NAME", "STATE",   "USED", "CLOSED",
                                        "GPUS", "ADDRESS", "SEEN", "VERSION"};
    struct output_table table = {.columns = sizeof heads / sizeof heads[0], .right = "llrrrlrl"};
    const char *colors[NODES_MAX];

    for (size_t i = 0; i < table.columns; i++)
        output_cell(&table, "%s", heads[i]);
    for (uint32_t i = 0; i < nodes->nodes.count; i++) {
        const struct part_node *node = &nodes->nodes.items[i];

        node_row(&table, node);
        colors[i] = state_color(node->state != NODE_UP ? JOB_FAILED
                                : node->drained        ? JOB_RESTARTING
                                                       : JOB_RUNNING);
    }
    output_table_write(&table, style->color ? colors : NULL, 1, out);
}

void output_nodes(const struct msg_nodes *nodes, const struct output_style *style, struct buf *out)
{
    nodes_table(nodes, style, out);
    closed_lines(nodes, out);
}

void output_node(const struct msg_nodes *nodes, const struct output_style *style, struct buf *out)
{
    static const char *const heads[] = {"SLOT", "STATE", "JOB", "SINCE", "WHY"};
    struct output_table table = {.columns = sizeof heads / sizeof heads[0], .right = "rlrll"};
    char since[TEXT_BYTES];

    assert(nodes->nodes.count == 1);
    nodes_table(nodes, style, out);
    notice_line(&nodes->nodes.items[0], out);
    if (nodes->nodes.items[0].drained)
        drained_line(&nodes->nodes.items[0], out);
    for (size_t i = 0; i < table.columns; i++)
        output_cell(&table, "%s", heads[i]);
    for (uint32_t i = 0; i < nodes->slots.count; i++) {
        const struct part_slot *slot = &nodes->slots.items[i];
        struct buf why = {0};

        if (strcmp(slot->node, nodes->nodes.items[0].name) != 0)
            continue;
        output_cell(&table, "%u", slot->slot);
        output_cell(&table, "%s", slot_state_name(slot->state));
        if (slot->job_id != 0)
            output_cell(&table, "%llu", (unsigned long long)slot->job_id);
        else
            output_cell(&table, "-");
        time_text(slot->since_ms, since);
        output_cell(&table, "%s", slot->since_ms > 0 ? since : "-");
        escape_text(slot->reason, strlen(slot->reason), &why);
        buf_add(&why, "", 1);
        output_cell(&table, "%s%s%s%s", slot->drained_by[0] ? "by " : "", slot->drained_by,
                    slot->drained_by[0] ? ": " : "", why.failed ? "" : why.bytes);
        buf_free(&why);
    }
    buf_add_text(out, "\n");
    output_table_write(&table, NULL, 0, out);
}

void output_events(const struct msg_events *events, struct buf *out)
{
    for (uint32_t i = 0; i < events->events.count; i++) {
        const struct part_event *event = &events->events.items[i];
        char text[TEXT_BYTES];

        time_text(event->at_ms, text);
        buf_add_text(out, text);
        if (event->job_id)
            buf_printf(out, "  job %llu", (unsigned long long)event->job_id);
        if (event->generation)
            buf_printf(out, " generation %u", event->generation);
        buf_add_text(out, "  ");
        escape_text(event->text, strlen(event->text), out);
        buf_add_text(out, "\n");
    }
}
