#include "ddpctl/attach_parts.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ddpctl/escape.h"
#include "ddpctl/torchrun.h"

#define DONE_NOTE_US 5000000u /* ranks seldom end at the same time */
#define WAIT_NOTE_US 1000000u /* shorter waits are not reported: a job may start at once */

void attach_show(struct attach *attach, bool is_error, struct buf *out)
{
    struct screen *screen = &attach->ctl->screen;
    enum status status = is_error && attach->options.view.splits && !screen->json
                             ? screen_err_out(screen, out)
                             : screen_out(screen, out);

    if (status == STATUS_OK || attach->done)
        return;
    if (!attach->options.job_decides || attach->options.can_detach)
        attach_stop(attach,
                    attach->options.job_decides ? CTL_OURS : CTL_OK); /* stdout was closed, for
                                                                       * example by `| head` */
    else
        interrupt_cancel(&attach->interrupt);
}

/* Ends the part of a line that another view has left, or notices that our own text has ended it. */
static void begin_line(struct attach *attach, const struct view *view, bool is_error)
{
    struct buf out = {0};

    if (attach->open_view == NULL || (attach->open_view == view && attach->ctl->screen.is_mid_line))
        return;
    if (attach->ctl->screen.is_mid_line) {
        buf_add_text(&out, "\n");
        attach_show(attach, is_error, &out);
    }
    view_cut(attach->open_view);
    attach->open_view = NULL;
}

/* Writes what `view` shows. */
static void show_view(struct attach *attach, struct view *view, struct buf *out)
{
    const bool is_error = view->source.is_error;

    if (out->byte_count > 0) {
        begin_line(attach, view, is_error);
        attach->open_view = view->is_open ? view : NULL;
    }
    attach_show(attach, is_error, out);
}

/* To be called before `view` takes anything: our own text may have ended its line. */
static void take_view(struct attach *attach, const struct view *view)
{
    if (attach->open_view == view && !attach->ctl->screen.is_mid_line)
        begin_line(attach, NULL, view->source.is_error);
}

static void settle(struct attach *attach, struct view *view)
{
    struct buf out = {0};

    view_settle(view, &out);
    show_view(attach, view, &out);
}

/* The run that begins at byte `at`. If the runs are not known, one run has all remaining bytes. */
static struct part_log_run next_run(const struct msg_log_data *data, uint32_t *i, uint32_t at)
{
    struct part_log_run run = {.bytes = data->bytes.count - at};

    if (*i < data->runs.count)
        run = data->runs.items[(*i)++];
    if (run.bytes > data->bytes.count - at)
        run.bytes = data->bytes.count - at; /* a wrong length: show each byte only once */
    return run;
}

/* Whether torchrun would put its prefix before the lines of this stream. */
static bool is_teed(const struct view_options *options, uint32_t rank, bool is_error)
{
    const struct view_hidden *hidden = &options->hidden;

    return hidden->local_count > 0 && options->prefix == VIEW_PREFIX_AUTO && options->splits &&
           (hidden->teed[rank % hidden->local_count] & (is_error ? VIEW_ERROR : VIEW_OUT)) != 0;
}

/* What torchrun would put before the lines of a rank. */
static void torchruns_prefix(const struct attach *attach, uint32_t number,
                             char prefix[VIEW_PREFIX_BYTES])
{
    const struct view_options *options = &attach->options.view;
    const uint32_t locals = options->hidden.local_count;
    char host[NODE_NAME_BYTES_MAX];
    const struct torchrun_line line = {.role = options->role != NULL ? options->role : "default",
                                       .host = host,
                                       .rank = number,
                                       .local_rank = locals > 0 ? number % locals : number};

    (void)snprintf(host, sizeof host, "%s", attach->ranks[number].node);
    if (attach->ctl->options.standalone && gethostname(host, sizeof host) != 0)
        host[0] = '\0'; /* its nodes have names of our own */
    host[sizeof host - 1] = '\0';
    torchrun_prefix(options->line_prefix, &line, prefix);
}

static void set_prefix(const struct attach *attach, uint32_t number, bool is_error,
                       const struct view_target *target, bool has_color, struct view *view)
{
    const struct view_options *options = &attach->options.view;

    if (options->line_prefix != NULL ||
        (!target->is_terminal && is_teed(options, number, is_error)))
        torchruns_prefix(attach, number, view->prefix);
    else
        view_prefix(number, attach->ranks[number].node, attach->rank_width, attach->node_width,
                    has_color, view->prefix);
}

/* Bytes that are shown; none: the stream has ended. */
static void duplicate(const struct attach *attach, uint32_t rank, bool is_error, const void *bytes,
                      size_t byte_count)
{
    char prefix[VIEW_PREFIX_BYTES];

    if (attach->options.duplicate == NULL)
        return;
    torchruns_prefix(attach, rank, prefix);
    if (byte_count > 0)
        duplicate_bytes(attach->options.duplicate, rank, is_error, prefix, bytes, byte_count);
    else
        duplicate_end(attach->options.duplicate, rank, is_error, prefix);
}

void attach_show_log(struct attach *attach, uint32_t rank, const struct msg_log_data *data,
                     uint32_t skip, bool is_final)
{
    const struct view_options *options = &attach->options.view;
    struct buf out = {0};
    uint32_t i = 0, at = 0;

    while (at < data->bytes.count) {
        const struct part_log_run run = next_run(data, &i, at);
        struct view *view = &attach->ranks[rank].views[run.is_error];
        const uint32_t from = skip > at ? skip : at, end = at + run.bytes;

        view->at_ms = run.at_ms;
        take_view(attach, view);
        if (from < end && !view_hides(options, rank, run.is_error)) {
            view_bytes(view, data->bytes.items + from, end - from, &out);
            duplicate(attach, rank, run.is_error, data->bytes.items + from, end - from);
        }
        at = end;
        if (out.byte_count > 0)
            settle(attach, &attach->ranks[rank].views[!run.is_error]);
        show_view(attach, view, &out);
    }
    for (int k = 0; is_final && k < 2; k++) {
        struct view *view = &attach->ranks[rank].views[k];

        take_view(attach, view);
        view_end(view, &out);
        show_view(attach, view, &out);
        duplicate(attach, rank, k == 1, NULL, 0);
    }
}

static struct view_target target_of(const struct attach *attach, bool is_error)
{
    const struct screen *screen = &attach->ctl->screen;

    return (struct view_target){.is_terminal = is_error && attach->options.view.splits
                                                   ? screen->err_is_tty
                                                   : screen->out_is_tty,
                                .has_ranks = attach->world > 1};
}

/* Makes the two views of one rank: stdout and stderr. Who runs a job is its owner, and may let it draw over lines above;
 * who reads a log has lines of others there. */
static void make_views(struct attach *attach, uint32_t number)
{
    const struct screen *screen = &attach->ctl->screen;
    struct attach_rank *rank = &attach->ranks[number];

    for (int k = 0; k < 2; k++) {
        struct view *view = &rank->views[k];
        const bool is_error = k == 1;
        const struct view_target target = target_of(attach, is_error);
        struct view_options options = attach->options.view;
        const bool has_color = is_error && options.splits ? screen->err_color : screen->color;

        if (is_teed(&options, number, is_error))
            options.prefix = VIEW_PREFIX_ALWAYS;
        view->form = screen->json ? VIEW_JSON : view_choose(&options, &target);
        if (view->form == VIEW_PLAIN && attach->options.has_terminal)
            view->form = VIEW_EXACT; /* terminal output is shown unchanged */
        view->has_times = options.has_times;
        view->shows_parts = target.is_terminal;
        view->is_typed = attach->options.has_stdin && attach->options.stdin_rank == number &&
                         isatty(STDIN_FILENO) == 1;
        view->rules =
            (struct sequence_rules){.has_styles = has_color,
                                    .has_moves = view->form == VIEW_PLAIN,
                                    .has_climbs = view->form == VIEW_PLAIN && options.splits};
        view->source = (struct view_source){.job_id = attach->job_id,
                                            .generation = attach->follow.generation,
                                            .rank = number,
                                            .node = rank->node,
                                            .is_error = is_error};
        view->prefix[0] = '\0';
        if (view_has_prefix(&options, &target))
            set_prefix(attach, number, is_error, &target, has_color, view);
    }
}

bool attach_make_ranks(struct attach *attach, const struct part_job *job)
{
    char digits[16];

    assert(attach->ranks == NULL);
    attach->world = follow_world(job);
    attach->ranks = calloc(attach->world, sizeof *attach->ranks);
    if (!attach->ranks) {
        attach->world = 0;
        return false;
    }
    attach->rank_width = snprintf(digits, sizeof digits, "%u", attach->world - 1);
    if (attach->rank_width < 2)
        attach->rank_width = 2;
    return true;
}

/* Keeps the nodes of the job's newest generation: the server tells no others. */
static void take_nodes(struct attach *attach, const struct msg_job_info *info)
{
    const uint32_t generation = info->jobs.items[0].generation;

    for (uint32_t i = 0; generation != attach->newest_generation && i < attach->world; i++)
        attach->ranks[i].newest_node[0] = '\0';
    attach->newest_generation = generation;
    for (uint32_t i = 0; i < info->ranks.count; i++) {
        const struct part_job_rank *rank = &info->ranks.items[i];

        if (rank->rank >= attach->world)
            continue;
        (void)snprintf(attach->ranks[rank->rank].newest_node, NODE_NAME_BYTES_MAX, "%s",
                       rank->node);
        if (rank->pid != 0 || (rank->state != RANK_WAITING && rank->state != RANK_LOST))
            attach->ranks[rank->rank].started_generation = generation;
    }
}

/* Names the nodes of the generation that is being read. Those of an older one stay as they were
 * when it was the newest; if we did not read it then, they are left out. */
static void name_nodes(struct attach *attach)
{
    const bool is_newest = attach->follow.generation == attach->newest_generation;

    for (uint32_t i = 0; i < attach->world; i++) {
        struct attach_rank *rank = &attach->ranks[i];

        if (is_newest)
            memcpy(rank->node, rank->newest_node, sizeof rank->node);
        else if (attach->shown_generation != attach->follow.generation)
            rank->node[0] = '\0';
        if ((int)strlen(rank->node) > attach->node_width)
            attach->node_width = (int)strlen(rank->node);
    }
}

static void show_generation(struct attach *attach)
{
    name_nodes(attach);
    for (uint32_t i = 0; i < attach->world; i++)
        make_views(attach, i);
    attach->shown_generation = attach->follow.generation;
}

void attach_make_views(struct attach *attach, const struct msg_job_info *info)
{
    assert(attach->world > 0);
    take_nodes(attach, info);
    if (info->ranks.count > 0 || attach->shown_generation != attach->follow.generation)
        show_generation(attach);
}

void attach_show_turn(struct attach *attach)
{
    const struct cause *cause = causes_find(&attach->causes, attach->follow.generation - 1);
    struct output_turn turn = {
        .job_id = attach->job_id,
        .generation = attach->follow.generation,
        .world = attach->world_now,
        .checkpoint_step = attach->checkpoint_step,
        .cause = cause != NULL ? cause->text : "",
    };
    struct buf out = {0};

    if (attach->options.on_log != NULL)
        return;
    show_generation(attach);
    if (attach->ctl->screen.json) {
        output_turn_json(&turn, &out);
        attach_show(attach, false, &out);
        return;
    }
    output_turn(&turn, &out);
    buf_add(&out, "", 1);
    if (!out.failed)
        screen_message(&attach->ctl->screen, "-- %s --", out.bytes);
    buf_free(&out);
}

void attach_store_end(struct attach *attach, const struct msg_job_info *info)
{
    const struct part_job *job = &info->jobs.items[0];

    assert(!attach->ended && job->ended);
    attach->ended = true;
    interrupt_job_ended(&attach->interrupt);
    attach->exit_code = ctl_job_exit(job);
    attach->exit_is_ours = job->exit_is_ours;
    if (job->state == JOB_CANCELLED && attach->interrupt.signal_number) {
        attach->exit_code = 128 + attach->interrupt.signal_number;
        attach->exit_is_ours = true;
    }
    output_exit_json(info, attach->exit_code, attach->exit_is_ours, &attach->end_json);
    attach->has_failed = job->state == JOB_FAILED;
    output_verdict(info, &attach->end_text);
    buf_add(&attach->end_text, "", 1);
}

/* `job`: new; NULL: time has passed. */
void attach_show_progress(struct attach *attach, const struct part_job *job)
{
    struct bar_event event = {.type = job != NULL ? BAR_JOB : BAR_TICK,
                              .now_us = clock_boot_us(),
                              .columns = screen_columns(),
                              .job = job};
    struct buf line = {0};

    if (!attach->options.job_decides || attach->options.hide_progress)
        return;
    bar_step(&attach->bar, &event, &line);
    buf_add(&line, "", 1);
    screen_line(&attach->ctl->screen, line.failed || line.byte_count == 1 ? NULL : line.bytes);
    buf_free(&line);
}

void attach_show_news(struct attach *attach, const struct part_event *event)
{
    struct buf text = {0};

    if (!attach->options.job_decides || !causes_is_news(event))
        return;
    escape_text(event->text, strlen(event->text), &text);
    buf_add(&text, "", 1);
    if (!text.failed)
        screen_message(&attach->ctl->screen, "-- job %s: %s --", attach->job_text, text.bytes);
    buf_free(&text);
}

/* Reports each generation once, after the line that says why there is a new one. */
void attach_show_running(struct attach *attach)
{
    if (attach->said_generation >= attach->running_generation ||
        (attach->options.show_logs && attach->follow.generation != attach->running_generation))
        return;
    attach->said_generation = attach->running_generation;
    if (attach->running_generation > 1 && attach->options.job_decides)
        screen_message(&attach->ctl->screen, "-- job %s runs again, generation %u --",
                       attach->job_text, attach->running_generation);
}

/* Says why the job waits: at once for a reader of its logs, after WAIT_NOTE_US for the attached
 * user who started the job. */
void attach_show_wait(struct attach *attach)
{
    const char *text = wait_note_due(&attach->wait_note, clock_boot_us(),
                                     attach->options.job_decides ? WAIT_NOTE_US : 0);

    if (text && !attach->done && attach->options.show_logs)
        screen_message(&attach->ctl->screen, "-- %s --", text);
}

void attach_show_done(struct attach *attach)
{
    const char *text = done_note_due(&attach->done_note, clock_boot_us(), DONE_NOTE_US);
    const struct ctl *ctl = attach->ctl;
    const bool is_private = ctl->options.standalone || ctl->options.slurm;

    if (text == NULL || attach->done || !attach->follow.options.keep_on)
        return;
    if (is_private) /* no other terminal reaches their server */
        screen_message(&attach->ctl->screen, "-- %s; Ctrl-C ends the job --", text);
    else
        screen_message(&attach->ctl->screen, "-- %s: ddpctl why %s says where --", text,
                       attach->job_text);
}

void attach_tick(struct attach *attach)
{
    struct buf out = {0};
    uint64_t now_us = clock_boot_us();

    for (int k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < attach->world; i++) {
            struct view *view = &attach->ranks[i].views[k];

            take_view(attach, view);
            view_tick(view, now_us, &out);
            show_view(attach, view, &out);
        }
    }
    attach_show_wait(attach);
    attach_show_done(attach);
    if (attach->done)
        return;
    attach_show_running(attach);
    attach_show_progress(attach, NULL);
}

void attach_show_end(struct attach *attach)
{
    struct ctl *ctl = attach->ctl;
    bool is_known = attach->ended && !attach->end_text.failed && !attach->end_json.failed;

    if (!attach->options.job_decides || !is_known)
        return;
    if (ctl->screen.json)
        (void)screen_out(&ctl->screen, &attach->end_json);
    else if (attach->exit_code != 0 || ctl->screen.err_is_tty)
        screen_message(&ctl->screen, "-- %s --", attach->end_text.bytes);
    if (attach->has_failed && !ctl->options.standalone &&
        !ctl->options.slurm) { /* their server ends with the job */
        const char *server = ctl_server_shown(ctl);

        screen_message(&ctl->screen, "-- more: ddpctl%s%s why %s --",
                       server != NULL ? " --server " : "", server != NULL ? server : "",
                       attach->job_text);
    }
}
