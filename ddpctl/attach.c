#include "ddpctl/attach.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/msg_version.h"

#define NEWS_WAIT_US                                                                               \
    20000000u /* how long the server may wait before it answers that nothing is
                                * new */
#define ANSWER_TIMEOUT_US 10000000u
#define LOG_TIMEOUT_US 30000000u /* an answer of a node: how long it may wait, plus a margin */
#define TICK_MS 250
#define EVENTS_PAGE 200u
#define WAIT_NOTE_US 1000000u /* a job that starts at once is not said to wait */

static void pump_logs(struct attach *attach);
static void finish_if_done(struct attach *attach);

void attach_stop(struct attach *attach, int exit_code)
{
    if (attach->done)
        return;
    attach->done = true;
    attach->exit_code = exit_code;
    client_close(&attach->job_client);
    for (uint32_t i = 0; i < attach->log_client_count; i++)
        client_close(&attach->log_clients[i]);
    uv_close((uv_handle_t *)&attach->tick, NULL);
    interrupt_close(&attach->interrupt);
    screen_line(&attach->ctl->screen, NULL);
    attach->options.on_done(attach);
}

void attach_free(struct attach *attach)
{
    for (uint32_t i = 0; i < attach->world; i++)
        view_close(&attach->ranks[i].view);
    free(attach->ranks);
    free(attach->log_clients);
    buf_free(&attach->end_json);
    buf_free(&attach->end_text);
}

uint64_t attach_job_id(const struct attach *attach)
{
    return attach->job_id;
}

static void show(struct attach *attach, struct buf *out)
{
    if (screen_out(&attach->ctl->screen, out) == STATUS_OK || attach->done)
        return;
    if (!attach->options.job_decides || attach->options.can_detach)
        attach_stop(attach,
                    attach->options.job_decides ? CTL_OURS : CTL_OK); /* stdout is closed, as by `|
                                                                       * head` */
    else
        interrupt_cancel(&attach->interrupt);
}

static enum view_form choose_form(const struct attach *attach)
{
    const struct screen *screen = &attach->ctl->screen;

    if (screen->json)
        return VIEW_JSON;
    if (attach->ctl->options.raw)
        return VIEW_EXACT;
    if (attach->world > 1)
        return VIEW_PREFIXED;
    return screen->out_is_tty ? VIEW_PLAIN : VIEW_EXACT;
}

static bool make_ranks(struct attach *attach, const struct part_job *job)
{
    char digits[16];

    assert(attach->ranks == NULL);
    attach->world = job->nodes * job->nproc_per_node;
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

/* Makes the prefixes for the generation that is being read, once the nodes of its ranks are
 * known. */
static void make_views(struct attach *attach, const struct msg_job_info *info)
{
    enum view_form form = choose_form(attach);

    assert(attach->world > 0);
    for (uint32_t i = 0; i < info->ranks.count; i++) {
        const struct part_job_rank *rank = &info->ranks.items[i];

        if (rank->rank >= attach->world)
            continue;
        (void)snprintf(attach->ranks[rank->rank].node, NODE_NAME_BYTES_MAX, "%s", rank->node);
        if ((int)strlen(rank->node) > attach->node_width)
            attach->node_width = (int)strlen(rank->node);
    }
    for (uint32_t i = 0; i < attach->world; i++) {
        struct attach_rank *rank = &attach->ranks[i];
        struct view *view = &rank->view;

        view->form = form;
        view->source = (struct view_source){.job_id = attach->job_id,
                                            .generation = attach->follow.generation,
                                            .rank = i,
                                            .node = rank->node};
        view_prefix(i, rank->node, attach->rank_width, attach->node_width,
                    attach->ctl->screen.color, view->prefix);
    }
    attach->shown_generation = attach->follow.generation;
}

static void show_turn(struct attach *attach)
{
    const struct cause *cause = causes_find(&attach->causes, attach->follow.generation - 1);
    struct output_turn turn = {
        .job_id = attach->job_id,
        .generation = attach->follow.generation,
        .world = attach->world,
        .checkpoint_step = attach->checkpoint_step,
        .cause = cause != NULL ? cause->text : "",
    };
    struct buf out = {0};

    if (attach->options.on_log != NULL)
        return;
    for (uint32_t i = 0; i < attach->world; i++)
        attach->ranks[i].view.source.generation = attach->follow.generation;
    if (attach->ctl->screen.json) {
        output_turn_json(&turn, &out);
        show(attach, &out);
        return;
    }
    output_turn(&turn, &out);
    buf_add(&out, "", 1);
    if (!out.failed)
        screen_message(&attach->ctl->screen, "-- %s --", out.bytes);
    buf_free(&out);
}

static void hand_over(struct attach *attach, const struct msg_log_data *data, enum follow_data what,
                      uint32_t rank, uint32_t skip, bool is_final)
{
    const bool has_bytes = what == FOLLOW_SHOW || what == FOLLOW_GAP;
    const struct attach_piece piece = {.generation = attach->follow.generation,
                                       .rank = rank,
                                       .bytes = data->bytes.items + (has_bytes ? skip : 0),
                                       .byte_count = has_bytes ? data->bytes.count - skip : 0,
                                       .is_final = is_final,
                                       .problem = what == FOLLOW_PROBLEM ? data->problem : ""};

    if ((has_bytes || is_final) && !attach->options.on_log(attach, &piece))
        attach_stop(attach, CTL_OK);
}

static void take_log(struct attach *attach, const struct msg_log_data *data)
{
    uint32_t rank = 0, skip = 0;
    bool is_final = false;
    enum follow_data what =
        follow_take(&attach->follow, data, clock_boot_us(), &rank, &skip, &is_final);
    struct buf out = {0};
    struct view *view = &attach->ranks[rank].view;

    if (what == FOLLOW_PROBLEM && attach->options.on_log == NULL)
        screen_message(&attach->ctl->screen, "-- rank %u: %s --", rank, data->problem);
    if (what == FOLLOW_GAP)
        screen_message(&attach->ctl->screen, "-- rank %u: some of its log is missing here --",
                       rank);
    if (attach->options.on_log != NULL) {
        hand_over(attach, data, what, rank, skip, is_final);
        return;
    }
    if (what == FOLLOW_SHOW || what == FOLLOW_GAP)
        view_bytes(view, data->bytes.items + skip, data->bytes.count - skip, &out);
    if (is_final)
        view_end(view, &out);
    show(attach, &out);
}

static void on_log_message(struct client *client, const struct msg *msg)
{
    struct attach *attach = client->owner;

    if (msg->type == MSG_TYPE_ERROR) {
        attach_stop(attach, ctl_fail_answer(attach->ctl, &msg->error));
        return;
    }
    if (msg->type != MSG_TYPE_LOG_DATA)
        return;
    if (attach->follow.options.what == LOG_METRICS &&
        client->conn.protocols.peer < msg_field_since("log_read", "what")) {
        attach_stop(attach, ctl_fail(attach->ctl, CTL_FAILED,
                                     "the server is of an earlier version, which has no metrics",
                                     "upgrade rendezvous"));
        return;
    }
    client_expect(client, LOG_TIMEOUT_US);
    take_log(attach, &msg->log_data);
    if (!attach->done)
        pump_logs(attach);
}

static void on_log_open(struct client *client)
{
    struct attach *attach = client->owner;

    follow_lost(&attach->follow, (uint32_t)(client - attach->log_clients),
                attach->log_client_count);
    pump_logs(attach);
}

static void on_log_failed(struct client *client, const struct err *err)
{
    struct attach *attach = client->owner;

    attach_stop(attach, ctl_fail_server(attach->ctl, err));
}

static const struct client_handlers log_handlers = {
    .on_open = on_log_open, .on_message = on_log_message, .on_failed = on_log_failed};

static void open_logs(struct attach *attach)
{
    uint32_t most = attach->world < FOLLOW_RANKS_MAX ? attach->world : FOLLOW_RANKS_MAX;
    uint32_t count = (most + ATTACH_RANKS_PER_CONN - 1) / ATTACH_RANKS_PER_CONN;

    attach->log_clients = calloc(count, sizeof *attach->log_clients);
    if (!attach->log_clients) {
        attach_stop(attach, ctl_fail(attach->ctl, CTL_FAILED, "out of memory", ""));
        return;
    }
    attach->log_client_count = count;
    for (uint32_t i = 0; i < count; i++) {
        client_open(&attach->log_clients[i], attach->loop, &attach->ctl->server,
                    attach->options.patience_us, &log_handlers, attach);
        attach->log_clients[i].first_is_patient = true; /* the server has just answered on the other
                                                         * connection */
    }
}

/* Requests all logs that can be requested now, once the nodes of all ranks are known, and advances to
 * the next generation when this one is read. */
static void pump_logs(struct attach *attach)
{
    struct msg msg = {.type = MSG_TYPE_LOG_READ};
    uint64_t now_us = clock_boot_us(), ask_at_us = UINT64_MAX;

    while (attach->log_client_count > 0 && attach->next_rank == 0 && !attach->done) {
        struct client *client;
        struct err err = {0};

        while (!attach->causes_wanted && follow_turn(&attach->follow))
            show_turn(attach);
        if (attach->done || !follow_next(&attach->follow, now_us, &msg.log_read, &ask_at_us))
            break;
        client = &attach->log_clients[attach->follow.ranks[msg.log_read.rank].ordinal %
                                      attach->log_client_count];
        client_expect(client, LOG_TIMEOUT_US);
        if (client_send(client, &msg, &err) != STATUS_OK && err.status != STATUS_CLOSED)
            attach_stop(attach, ctl_fail_err(attach->ctl, CTL_FAILED, &err, ""));
    }
    finish_if_done(attach);
}

static void ask_job(struct attach *attach)
{
    struct msg msg = {.type = MSG_TYPE_JOB_GET};
    struct err err = {0};

    msg.job_get.job = attach->job_id ? attach->job_text : attach->options.job;
    msg.job_get.first_rank = attach->next_rank;
    msg.job_get.after_version = attach->next_rank > 0 ? 0 : attach->version;
    msg.job_get.wait_us = msg.job_get.after_version ? NEWS_WAIT_US : 0;
    client_expect(&attach->job_client, NEWS_WAIT_US + ANSWER_TIMEOUT_US);
    if (client_send(&attach->job_client, &msg, &err) != STATUS_OK && err.status != STATUS_CLOSED)
        attach_stop(attach, ctl_fail_err(attach->ctl, CTL_FAILED, &err, ""));
}

static void ask_events(struct attach *attach)
{
    struct msg msg = {.type = MSG_TYPE_EVENT_LIST};
    struct err err = {0};

    msg.event_list.job_id = attach->job_id;
    msg.event_list.after_id = attach->event_id;
    msg.event_list.limit = EVENTS_PAGE;
    client_expect(&attach->job_client, ANSWER_TIMEOUT_US);
    if (client_send(&attach->job_client, &msg, &err) != STATUS_OK && err.status != STATUS_CLOSED)
        attach_stop(attach, ctl_fail_err(attach->ctl, CTL_FAILED, &err, ""));
}

/* One request at a time, since answers have no number. */
static void ask_next(struct attach *attach)
{
    if (attach->causes_wanted)
        ask_events(attach);
    else if (attach->version == 0 || attach->next_rank > 0 ||
             (attach->follow.options.keep_on && !attach->ended))
        ask_job(attach);
    else
        client_expect(&attach->job_client, 0);
}

static void know_job(struct attach *attach, uint64_t job_id)
{
    attach->job_id = job_id;
    (void)snprintf(attach->job_text, sizeof attach->job_text, "%llu", (unsigned long long)job_id);
}

static void take_events(struct attach *attach, const struct msg_events *events)
{
    for (uint32_t i = 0; i < events->events.count; i++) {
        attach->event_id = events->events.items[i].id;
        causes_take(&attach->causes, &events->events.items[i]);
    }
    attach->causes_wanted = events->events.count == EVENTS_PAGE;
    ask_next(attach);
    if (!attach->done)
        pump_logs(attach);
}

static void store_end(struct attach *attach, const struct msg_job_info *info)
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
    output_verdict(info, &attach->end_text);
    buf_add(&attach->end_text, "", 1);
}

/* `job`: new; NULL: time has passed. */
static void show_progress(struct attach *attach, const struct part_job *job)
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

static bool first_info(struct attach *attach, const struct part_job *job)
{
    know_job(attach, job->job_id);
    causes_init(&attach->causes, attach->cause_items, ATTACH_CAUSES, job->name, job->job_id);
    if (!make_ranks(attach, job)) {
        attach_stop(attach, ctl_fail(attach->ctl, CTL_FAILED, "out of memory", ""));
        return false;
    }
    if (attach->options.show_logs)
        open_logs(attach);
    return !attach->done;
}

/* Says why the job waits: at once to a reader of its logs, after a moment to who started it. */
static void show_wait(struct attach *attach)
{
    const char *text = wait_note_due(&attach->wait_note, clock_boot_us(),
                                     attach->options.job_decides ? WAIT_NOTE_US : 0);

    if (text && !attach->done && attach->options.show_logs)
        screen_message(&attach->ctl->screen, "-- %s --", text);
}

/* A page of ranks is read: the next one, until the nodes of all ranks of this generation are known. */
static void turn_page(struct attach *attach, const struct msg_job_info *info)
{
    bool is_later_page = attach->next_rank > 0;

    attach->next_rank = 0;
    if (info->more_ranks && info->ranks.count > 0 &&
        (is_later_page || attach->named_generation != attach->generation))
        attach->next_rank = info->ranks.items[info->ranks.count - 1].rank + 1;
    else
        attach->named_generation = attach->generation;
}

static void on_info(struct attach *attach, const struct msg_job_info *info)
{
    const struct part_job *job = &info->jobs.items[0];
    struct err err = {0};

    if (attach->world == 0 && !first_info(attach, job))
        return;
    attach->version = info->version;
    attach->checkpoint_step = job->checkpoint_step;
    wait_note_take(&attach->wait_note, job, clock_boot_us());
    show_wait(attach);
    if (job->generation > attach->generation && job->generation > 1 &&
        attach->follow.options.keep_on)
        attach->causes_wanted = true;
    attach->generation = job->generation;
    if (follow_job(&attach->follow, info, &err) != STATUS_OK) {
        attach_stop(attach, ctl_fail_err(attach->ctl, CTL_NOT_FOUND, &err, ""));
        return;
    }
    if (info->ranks.count > 0)
        make_views(attach, info);
    turn_page(attach, info);
    if (job->ended && !attach->ended)
        store_end(attach, info);
    show_progress(attach, job);
    ask_next(attach);
    interrupt_job_known(&attach->interrupt, attach->job_id);
    pump_logs(attach);
}

static void on_submitted(struct attach *attach, const struct msg_submitted *submitted)
{
    know_job(attach, submitted->job_id);
    if (attach->options.on_submitted)
        attach->options.on_submitted(attach, submitted->job_id, submitted->is_new);
    interrupt_job_known(&attach->interrupt, attach->job_id);
    ask_job(attach);
}

static void on_job_message(struct client *client, const struct msg *msg)
{
    struct attach *attach = client->owner;

    if (msg->type == MSG_TYPE_JOB_INFO && msg->job_info.jobs.count == 1)
        on_info(attach, &msg->job_info);
    else if (msg->type == MSG_TYPE_EVENTS)
        take_events(attach, &msg->events);
    else if (msg->type == MSG_TYPE_SUBMITTED && attach->job_id == 0)
        on_submitted(attach, &msg->submitted);
    else if (msg->type == MSG_TYPE_ERROR)
        attach_stop(attach, ctl_fail_answer(attach->ctl, &msg->error));
    else
        attach_stop(attach, ctl_fail_unexpected(attach->ctl, msg));
}

static void on_job_open(struct client *client)
{
    struct attach *attach = client->owner;
    struct msg msg = {.type = MSG_TYPE_SUBMIT};
    struct err err = {0};

    if (attach->job_id != 0 || !attach->options.submit) {
        ask_next(attach);
        return;
    }
    msg.submit =
        *attach->options.submit; /* the same request id is the same job, however often it is sent */
    client_expect(client, ANSWER_TIMEOUT_US);
    if (client_send(client, &msg, &err) != STATUS_OK && err.status != STATUS_CLOSED)
        attach_stop(attach,
                    ctl_fail_err(attach->ctl, CTL_USAGE, &err, "--env-clear sends no variables"));
}

static void on_job_waiting(struct client *client, const struct err *err)
{
    struct attach *attach = client->owner;

    screen_message(&attach->ctl->screen, "-- the server does not answer (%s); %s --", err->text,
                   attach->job_id ? "the job goes on, still trying" : "still trying");
}

static void on_job_failed(struct client *client, const struct err *err)
{
    struct attach *attach = client->owner;
    int code = ctl_fail_server(attach->ctl, err);

    if (attach->job_id && attach->options.can_detach)
        screen_message(&attach->ctl->screen,
                       "the job is not touched by this; later: ddpctl logs -f %s",
                       attach->job_text);
    attach_stop(attach, code);
}

static const struct client_handlers job_handlers = {.on_open = on_job_open,
                                                    .on_message = on_job_message,
                                                    .on_waiting = on_job_waiting,
                                                    .on_failed = on_job_failed};

static void finish_if_done(struct attach *attach)
{
    if (attach->done || attach->version == 0)
        return;
    if (attach->follow.options.keep_on && !attach->follow.only_one && !attach->ended)
        return;
    if (attach->options.show_logs && !follow_done(&attach->follow))
        return;
    attach_stop(attach, attach->options.job_decides ? attach->exit_code : CTL_OK);
}

static void on_tick(uv_timer_t *timer)
{
    struct attach *attach = timer->data;
    struct buf out = {0};
    uint64_t now_us = clock_boot_us();

    for (uint32_t i = 0; i < attach->world; i++)
        view_tick(&attach->ranks[i].view, now_us, &out);
    show(attach, &out);
    show_wait(attach);
    if (attach->done)
        return;
    show_progress(attach, NULL);
    pump_logs(attach);
}

static void on_interrupt_stop(void *owner, int exit_code)
{
    attach_stop(owner, exit_code);
}

static void open_interrupt(struct attach *attach)
{
    struct interrupt_options options = {.ctl = attach->ctl,
                                        .loop = attach->loop,
                                        .patience_us = attach->options.patience_us,
                                        .is_on = attach->options.job_decides,
                                        .can_detach = attach->options.can_detach,
                                        .owner = attach,
                                        .on_stop = on_interrupt_stop};
    interrupt_open(&attach->interrupt, &options);
}

void attach_start(struct attach *attach, struct ctl *ctl, uv_loop_t *loop,
                  const struct attach_options *options)
{
    assert(attach->ctl == NULL && options->on_done != NULL);
    assert(options->submit != NULL || options->job != NULL);
    attach->ctl = ctl;
    attach->loop = loop;
    attach->options = *options;
    follow_init(&attach->follow, &options->follow);
    (void)uv_timer_init(loop, &attach->tick);
    attach->tick.data = attach;
    (void)uv_timer_start(&attach->tick, on_tick, TICK_MS, TICK_MS);
    open_interrupt(attach);
    client_open(&attach->job_client, loop, &ctl->server, options->patience_us, &job_handlers,
                attach);
    attach->job_client.first_is_patient = options->first_is_patient;
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
}

int attach_run(struct ctl *ctl, const struct attach_options *options)
{
    struct attach *attach = calloc(1, sizeof *attach);
    uv_loop_t loop;
    int code, rc;

    if (!attach || uv_loop_init(&loop) != 0) {
        free(attach);
        return ctl_fail(ctl, CTL_FAILED, "no event loop: out of files or memory", "");
    }
    attach_start(attach, ctl, &loop, options);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    rc = uv_loop_close(&loop);
    assert(rc == 0);
    (void)rc;
    code = attach->exit_code;
    attach_free(attach);
    free(attach);
    return code;
}
