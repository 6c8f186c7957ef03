#include "ddpctl/attach.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ddpctl/attach_parts.h"
#include "ddpctl/page.h"
#include "ddpctl/submit_only.h"

#define NEWS_WAIT_US                                                                               \
    20000000u /* how long the server may wait before it answers that nothing is
                                * new */
#define ANSWER_TIMEOUT_US 10000000u
#define TICK_MS 250
#define FIRST_TICK_MS 50 /* nobody notices that the first output comes so much later */
#define EVENTS_PAGE 200u
#define ASKS_PER_TICK 50u

uint64_t attach_job_id(const struct attach *attach)
{
    return attach->job_id;
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

/* One request at a time, because an answer does not say which request it belongs to. A server that has news without
 * end, or answers at once that there are none, is asked at most ASKS_PER_TICK times in a tick. */
static void ask_next(struct attach *attach)
{
    attach->must_ask = attach->asks_left == 0;
    if (attach->must_ask) {
        client_expect(&attach->job_client, 0);
        return;
    }
    attach->asks_left--;
    if (attach->causes_wanted || attach->news_wanted)
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
    const uint64_t before = attach->event_id;

    for (uint32_t i = 0; i < events->events.count; i++) {
        const struct part_event *event = &events->events.items[i];

        attach->event_id = event->id;
        causes_take(&attach->causes, event);
        attach_show_news(attach, event);
    }
    attach->news_wanted = attach->causes_wanted =
        page_goes_on(events->events.count == EVENTS_PAGE, before, attach->event_id);
    ask_next(attach);
    if (!attach->done)
        attach_pump_logs(attach);
}

static bool first_info(struct attach *attach, const struct part_job *job)
{
    know_job(attach, job->job_id);
    causes_init(&attach->causes, attach->cause_items, ATTACH_CAUSES, job->name, job->job_id);
    if (!attach_make_ranks(attach, job)) {
        attach_stop(attach, ctl_fail(attach->ctl, CTL_FAILED, "out of memory", ""));
        return false;
    }
    if (attach->options.show_logs)
        attach_open_logs(attach);
    return !attach->done;
}

/* Called after each page of ranks. Requests the next page until the nodes of all ranks of this
 * generation are known. */
static void turn_page(struct attach *attach, const struct msg_job_info *info)
{
    const uint32_t before = attach->next_rank, count = info->ranks.count;
    const uint32_t next = count > 0 ? info->ranks.items[count - 1].rank + 1 : 0;

    attach->next_rank = 0;
    if (page_goes_on(info->more_ranks, before, next) &&
        (before > 0 || attach->named_generation != attach->generation))
        attach->next_rank = next;
    else
        attach->named_generation = attach->generation;
}

static void feed_stdin(struct attach *attach, const struct msg_job_info *info)
{
    const struct part_job *job = &info->jobs.items[0];

    if (job->state == JOB_RUNNING || job->state == JOB_STARTING)
        stdin_feed_job(&attach->stdin_feed, attach->job_id, job->generation);
    for (uint32_t i = 0; i < info->ranks.count; i++)
        if (info->ranks.items[i].rank == attach->options.stdin_rank &&
            info->ranks.items[i].state == RANK_EXITED)
            stdin_feed_over(&attach->stdin_feed, job->generation);
}

static void on_info(struct attach *attach, const struct msg_job_info *info)
{
    const struct part_job *job = &info->jobs.items[0];
    struct err err = {0};

    if (attach->world == 0 && !first_info(attach, job))
        return;
    if (attach->next_rank == 0 && info->version <= attach->version)
        attach->asks_left = 0; /* nothing is new: the server did not wait for news */
    attach->version = info->version;
    attach->world_now = job->nodes * job->nproc_per_node;
    attach->checkpoint_step = job->checkpoint_step;
    wait_note_take(&attach->wait_note, job, clock_boot_us());
    attach_show_wait(attach);
    done_note_take(&attach->done_note, info, clock_boot_us());
    if (job->generation > attach->generation && job->generation > 1 &&
        attach->follow.options.keep_on)
        attach->causes_wanted = true;
    attach->news_wanted = attach->options.job_decides && !job->ended;
    attach->generation = job->generation;
    if (follow_job(&attach->follow, info, &err) != STATUS_OK) {
        attach_stop(attach, ctl_fail_err(attach->ctl, CTL_NOT_FOUND, &err, ""));
        return;
    }
    attach_make_views(attach, info);
    turn_page(attach, info);
    feed_stdin(attach, info);
    if (job->state == JOB_RUNNING)
        attach->running_generation = job->generation;
    attach_show_running(attach);
    if (job->ended && !attach->ended)
        attach_store_end(attach, info);
    attach_show_progress(attach, job);
    ask_next(attach);
    interrupt_job_known(&attach->interrupt, attach->job_id);
    attach_pump_logs(attach);
}

static void on_submitted(struct attach *attach, const struct msg_submitted *submitted)
{
    know_job(attach, submitted->job_id);
    if (attach->options.on_submitted)
        attach->options.on_submitted(attach, submitted->job_id, submitted->is_new);
    interrupt_job_known(&attach->interrupt, attach->job_id);
    ask_job(attach);
}

/* The job was refused before it was one. */
static void on_refused(struct attach *attach, const struct msg_error *error)
{
    struct msg_error shown = *error;

    if (submit_is_full(error) && attach->options.waits_for_room) {
        submit_tell_full(attach->ctl, error, &attach->room_told);
        attach->room_at_us = clock_boot_us() + SUBMIT_ROOM_MS * 1000u;
        client_expect(&attach->job_client, 0);
        return;
    }
    if (submit_is_full(error) && error->hint[0] == '\0')
        shown.hint = SUBMIT_ROOM_HINT;
    attach_stop(attach, ctl_fail_answer(attach->ctl, &shown));
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
    else if (msg->type == MSG_TYPE_ERROR && attach->job_id == 0 && attach->options.submit != NULL)
        on_refused(attach, &msg->error);
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
    attach->room_at_us = 0;
    msg.submit =
        *attach->options.submit; /* sending the same request id again does not make a second job */
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

static void on_tick(uv_timer_t *timer)
{
    struct attach *attach = timer->data;

    attach->asks_left = ASKS_PER_TICK;
    if (attach->room_at_us != 0 && attach->room_at_us <= clock_boot_us() && attach->job_client.open)
        on_job_open(&attach->job_client);
    if (attach->must_ask && attach->job_client.open)
        ask_next(attach);
    follow_go(&attach->follow);
    attach_tick(attach);
    if (!attach->done)
        attach_pump_logs(attach);
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
                                        .keyboard_is_used = attach->options.has_stdin,
                                        .owner = attach,
                                        .first_signal = attach->options.first_signal,
                                        .term_is_final = attach->options.term_is_final,
                                        .on_stop = on_interrupt_stop};
    interrupt_open(&attach->interrupt, &options);
    more_signals_open(&attach->more_signals, &attach->interrupt, attach->loop,
                      attach->options.more_signals);
}

/* Ctrl-] three times at a raw terminal: detaches, or cancels a job that cannot go on without us. */
static void on_escape(void *owner)
{
    struct attach *attach = owner;

    if (!attach->options.can_detach) {
        screen_message(&attach->ctl->screen, "-- cancelling the job --");
        interrupt_cancel(&attach->interrupt);
        return;
    }
    screen_message(&attach->ctl->screen,
                   "-- detached, the job goes on; its output: ddpctl logs -f %s --",
                   attach->job_text);
    attach_stop(attach, CTL_OK);
}

/* Ctrl-C at a raw terminal whose rank takes no more. */
static void on_break(void *owner)
{
    struct attach *attach = owner;

    interrupt_key(&attach->interrupt);
}

/* Whether our terminal shows whole lines, and not what one rank does with it. */
static bool shows_lines(const struct attach *attach)
{
    const struct msg_submit *submit = attach->options.submit;
    const struct view_target target = {.is_terminal = true,
                                       .has_ranks = submit == NULL ||
                                                    submit->nodes * submit->nproc_per_node > 1};
    const enum view_form form = view_choose(&attach->options.view, &target);

    return form != VIEW_PLAIN && form != VIEW_EXACT;
}

static void open_stdin(struct attach *attach)
{
    const struct stdin_feed_options options = {.ctl = attach->ctl,
                                               .loop = attach->loop,
                                               .rank = attach->options.stdin_rank,
                                               .is_raw = attach->options.has_terminal &&
                                                         isatty(STDIN_FILENO) == 1,
                                               .shows_lines = shows_lines(attach),
                                               .patience_us = attach->options.patience_us,
                                               .owner = attach,
                                               .on_break = on_break,
                                               .on_escape = on_escape};

    if (attach->options.has_stdin)
        stdin_feed_open(&attach->stdin_feed, &options);
}

void attach_start(struct attach *attach, struct ctl *ctl, uv_loop_t *loop,
                  const struct attach_options *options)
{
    assert(attach->ctl == NULL && options->on_done != NULL);
    assert(options->submit != NULL || options->job != NULL);
    attach->ctl = ctl;
    attach->loop = loop;
    attach->options = *options;
    attach->asks_left = ASKS_PER_TICK;
    /* A job that ends before the first tick has its logs read once. A node whose logs somebody waits for watches
     * them, and closing the watch takes it up to 15 ms. */
    attach->options.follow.is_held = options->submit != NULL;
    follow_init(&attach->follow, &attach->options.follow);
    (void)uv_timer_init(loop, &attach->tick);
    attach->tick.data = attach;
    (void)uv_timer_start(&attach->tick, on_tick, FIRST_TICK_MS, TICK_MS);
    open_interrupt(attach);
    open_stdin(attach);
    client_open(&attach->job_client, loop, &ctl->server, options->patience_us, &job_handlers,
                attach);
    attach->job_client.first_is_patient = options->first_is_patient;
    attach->job_client.awaits_welcome = options->submit != NULL;
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
