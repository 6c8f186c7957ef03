/* The verbs that show something: status, events, wait; and cancel. */
#include "ddpctl/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/array_spec.h"
#include "common/io/conn.h"
#include "ddpctl/job_lines.h"
#include "ddpctl/job_pages.h"
#include "ddpctl/request.h"
#include "ddpctl/units.h"
#include "ddpctl/why.h"

#define NEWS_WAIT_US                                                                               \
    20000000u               /* how long the server may wait before it answers that nothing is
                                * new */
#define EARLY_PAUSE_MS 250u /* after an answer without news that came early */

/* Whether an answer without news came much earlier than the server was allowed to wait. Whoever asks again at once would
 * ask a server that behaves so thousands of times a second. */
static bool is_early(uint64_t asked_us, uint64_t wait_us)
{
    return clock_boot_us() - asked_us < wait_us / 10;
}

#define NUMBER_BYTES 24

static void number_text(uint64_t job_id, char number[NUMBER_BYTES])
{
    (void)snprintf(number, NUMBER_BYTES, "%llu", (unsigned long long)job_id);
}

/* status of an array. */
static int status_of_array(struct ctl *ctl, uint64_t array_job)
{
    bool any_left = true;
    int rc = verb_list_once(ctl, array_job, &any_left);

    while (rc == CTL_OK && ctl->options.watch && any_left) {
        verb_pause_ms(VERB_WATCH_INTERVAL_MS);
        rc = verb_list_once(ctl, array_job, &any_left);
    }
    return rc;
}

struct seen {
    uint64_t version;
    bool ended;
};

static int on_why_line(struct ctl *ctl, const struct msg *msg, void *context)
{
    if (msg->why_info.jobs.count != 1)
        return ctl_fail_unexpected(ctl, msg);
    why_line(&msg->why_info, context);
    return CTL_OK;
}

/* Asks how a job failed or why it restarts, in one line. It stays empty for other jobs, and if the
 * server keeps nothing about it. */
static int ask_why_line(struct ctl *ctl, const struct part_job *job, struct buf *line)
{
    char number[NUMBER_BYTES];
    struct msg msg = {.type = MSG_TYPE_WHY_GET, .why_get = {.job = number}};
    struct request request = {.msg = &msg,
                              .patience_us = 5000000,
                              .answer = MSG_TYPE_WHY_INFO,
                              .on_answer = on_why_line,
                              .context = line};
    int rc = CTL_OK;

    if (ctl->screen.json || ctl->screen.quiet ||
        (job->state != JOB_FAILED && job->state != JOB_RESTARTING))
        return CTL_OK;
    number_text(job->job_id, number);
    rc = request_run(ctl, &request);
    if (line->byte_count > 0)
        buf_add(line, "", 1);
    return rc;
}

static int show_status(struct ctl *ctl, const struct msg_job_info *info, struct seen *seen)
{
    struct output_style style = screen_style(&ctl->screen);
    struct buf out = {0}, line = {0};
    int rc;

    if (info->version == seen->version)
        return CTL_OK; /* the server has waited, and nothing is new */
    seen->version = info->version;
    seen->ended = info->jobs.items[0].ended;
    rc = ask_why_line(ctl, &info->jobs.items[0], &line);
    if (line.byte_count > 0 && !line.failed)
        style.why = line.bytes;
    verb_begin_picture(ctl, &out);
    if (ctl->screen.json)
        output_status_json(info, &out);
    else if (ctl->screen.quiet)
        buf_printf(&out, "%s\n", job_state_name(info->jobs.items[0].state));
    else
        output_status(info, &style, &out);
    buf_free(&line);
    if (rc == CTL_OK)
        rc = verb_done(ctl, &out);
    buf_free(&out);
    return rc;
}

int verb_status(struct ctl *ctl)
{
    struct seen seen = {0};
    uint64_t array_job = 0;
    char number[NUMBER_BYTES];
    int rc = verb_need_one_job(ctl);

    while (rc == CTL_OK) {
        struct msg msg = {.type = MSG_TYPE_JOB_GET,
                          .job_get = {.job = seen.version ? number : ctl->words[0],
                                      .after_version = seen.version,
                                      .wait_us = seen.version ? NEWS_WAIT_US : 0}};
        struct request request = {.msg = &msg,
                                  .patience_us =
                                      ctl->options.watch ? ctl->options.patience_us : 5000000,
                                  .first_is_patient = seen.version > 0,
                                  .server_wait_us = NEWS_WAIT_US,
                                  .answer = MSG_TYPE_JOB_INFO};
        struct job_pages pages = {0};
        const uint64_t asked_us = clock_boot_us(), version = seen.version;

        rc = job_pages_read(ctl, &request, &pages);
        if (rc == CTL_OK && pages.info.jobs.count == 1 &&
            array_spec_is_whole(ctl->words[0], pages.info.jobs.items[0].array_job))
            array_job = pages.info.jobs.items[0].array_job;
        else if (rc == CTL_OK)
            rc = show_status(ctl, &pages.info, &seen);
        number_text(pages.job.job_id, number); /* a name may mean another job by now */
        job_pages_free(&pages);
        if (rc == CTL_OK && array_job != 0)
            return status_of_array(ctl, array_job);
        if (!ctl->options.watch || seen.ended)
            break;
        if (version > 0 && seen.version <= version && is_early(asked_us, NEWS_WAIT_US))
            verb_pause_ms(EARLY_PAUSE_MS);
    }
    return rc;
}

struct event_page {
    uint64_t last_id, job_id;
    uint32_t count;
    struct buf items; /* --json without -f: all events, each followed by a comma */
};

static int show_all_events(struct ctl *ctl, struct event_page *page)
{
    struct buf out = {0};

    buf_add_text(&out, "{\"schema\":\"ddp.v1\",\"events\":[");
    if (page->items.byte_count > 0)
        buf_add(&out, page->items.bytes, page->items.byte_count - 1);
    buf_add_text(&out, "]}\n");
    out.failed = out.failed || page->items.failed;
    return verb_done(ctl, &out);
}

static int on_events(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct msg_events *events = &msg->events;
    struct event_page *page = context;
    struct buf out = {0};

    page->count = events->events.count;
    if (page->count > 0 && events->events.items[page->count - 1].id <= page->last_id)
        return ctl_fail_unexpected(ctl, msg);
    if (page->count > 0)
        page->last_id = events->events.items[page->count - 1].id;
    for (uint32_t i = 0; ctl->screen.json && i < page->count; i++) {
        output_event_line_json(&events->events.items[i], ctl->options.follow ? &out : &page->items);
        if (!ctl->options.follow && page->items.byte_count > 0)
            page->items.bytes[page->items.byte_count - 1] = ','; /* replaces the line feed */
    }
    if (!ctl->screen.json)
        output_events(events, &out);
    return verb_done(ctl, &out);
}

static int on_job_id(struct ctl *ctl, const struct msg *msg, void *context)
{
    uint64_t *job_id = context;

    if (msg->job_info.jobs.count != 1)
        return ctl_fail_unexpected(ctl, msg);
    *job_id = msg->job_info.jobs.items[0].job_id;
    return CTL_OK;
}

static int find_job(struct ctl *ctl, const char *word, uint64_t *job_id)
{
    struct msg msg = {.type = MSG_TYPE_JOB_GET, .job_get = {.job = word}};
    int rc = verb_check_job(ctl, word);

    return rc != CTL_OK ? rc : verb_ask(ctl, &msg, MSG_TYPE_JOB_INFO, on_job_id, job_id);
}

int verb_events(struct ctl *ctl)
{
    const char *word = ctl->options.job      ? ctl->options.job
                       : ctl->word_count > 0 ? ctl->words[0]
                                             : NULL;
    struct event_page page = {0};
    int rc = verb_too_many(ctl, 1);

    if (rc == CTL_OK && word)
        rc = find_job(ctl, word, &page.job_id);
    while (rc == CTL_OK) {
        struct msg msg = {.type = MSG_TYPE_EVENT_LIST,
                          .event_list = {.job_id = page.job_id,
                                         .after_id = page.last_id,
                                         .limit = 200,
                                         .wait_us = ctl->options.follow ? NEWS_WAIT_US : 0}};
        struct request request = {.msg = &msg,
                                  .patience_us = ctl_patience_us(ctl),
                                  .first_is_patient = page.last_id > 0,
                                  .server_wait_us = NEWS_WAIT_US,
                                  .answer = MSG_TYPE_EVENTS,
                                  .on_answer = on_events,
                                  .context = &page};
        const uint64_t asked_us = clock_boot_us();

        rc = request_run(ctl, &request);
        if (!ctl->options.follow && page.count == 0)
            break;
        if (rc == CTL_OK && page.count == 0 && is_early(asked_us, NEWS_WAIT_US))
            verb_pause_ms(EARLY_PAUSE_MS);
    }
    if (rc == CTL_OK && ctl->screen.json && !ctl->options.follow)
        rc = show_all_events(ctl, &page);
    buf_free(&page.items);
    return rc;
}

/* The fields of a job that tell whether it belongs to an array. */
struct member {
    uint64_t job_id, array_job;
    uint32_t array_count;
};

static struct member member_of(const struct part_job *job)
{
    return (struct member){job->job_id, job->array_job, job->array_count};
}

struct waiting {
    struct member job; /* the job that was waited for last */
    uint64_t version;
    bool for_running;
    uint64_t for_step; /* 0: it does not wait for a step */
    bool met;
    int exit_code;
    bool exit_is_ours;
    struct buf *json; /* the end of the last job, as a JSON object */
};

/* Checks whether the condition is met or can no longer be, and sets the exit code. */
static bool take_state(struct waiting *waiting, const struct part_job *job)
{
    bool has_run = job->state == JOB_RUNNING || (job->ended && job->started_ms > 0);

    waiting->exit_code = 0;
    waiting->exit_is_ours = false;
    if (waiting->for_running && has_run)
        return true;
    if (waiting->for_step > 0 && job->step >= waiting->for_step)
        return true;
    if (!job->ended)
        return false;
    waiting->exit_code = ctl_job_exit(job);
    waiting->exit_is_ours = job->exit_is_ours;
    if (waiting->exit_code == 0 && (waiting->for_running || waiting->for_step > 0)) {
        waiting->exit_code = CTL_OURS; /* it succeeded, but the step will never come */
        waiting->exit_is_ours = true;
    }
    return true;
}

static int on_wait(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct msg_job_info *info = &msg->job_info;
    struct waiting *waiting = context;
    struct buf words = {0};

    if (info->jobs.count != 1)
        return ctl_fail_unexpected(ctl, msg);
    waiting->version = info->version;
    waiting->job = member_of(&info->jobs.items[0]);
    waiting->met = take_state(waiting, &info->jobs.items[0]);
    if (!waiting->met)
        return CTL_OK;
    if (ctl->screen.json)
        output_exit_json(info, waiting->exit_code, waiting->exit_is_ours, waiting->json);
    output_verdict(info, &words);
    buf_add(&words, "", 1);
    if (!words.failed)
        screen_message(&ctl->screen, "%s", words.bytes);
    buf_free(&words);
    return CTL_OK;
}

/* Waits for the job that `word` names at the first question. Asks at least once, also when the time
 * is over already. */
static int wait_job(struct ctl *ctl, const char *word, uint64_t deadline_us,
                    struct waiting *waiting)
{
    int rc = verb_check_job(ctl, word);
    uint64_t now_us = clock_boot_us();
    char number[NUMBER_BYTES];

    waiting->version = 0;
    waiting->met = false;
    while (rc == CTL_OK && !waiting->met) {
        const uint64_t left_us = deadline_us > now_us ? deadline_us - now_us : 0;
        const uint64_t patience_us = ctl->options.patience_us;
        const uint64_t version = waiting->version, asked_us = now_us;
        struct msg msg = {.type = MSG_TYPE_JOB_GET,
                          .job_get = {.job = word, .after_version = version}};
        struct request request = {.msg = &msg,
                                  .patience_us = left_us < patience_us ? left_us : patience_us,
                                  .first_is_patient = waiting->version > 0,
                                  .answer = MSG_TYPE_JOB_INFO,
                                  .on_answer = on_wait,
                                  .context = waiting};

        if (waiting->version > 0)
            msg.job_get.wait_us = left_us < NEWS_WAIT_US ? left_us : NEWS_WAIT_US;
        request.server_wait_us = msg.job_get.wait_us;
        rc = request_run(ctl, &request);
        now_us = clock_boot_us();
        if (rc == CTL_OK && !waiting->met && waiting->version <= version &&
            is_early(asked_us, msg.job_get.wait_us))
            verb_pause_ms(EARLY_PAUSE_MS);
        if (now_us >= deadline_us && rc == CTL_OK && !waiting->met)
            return ctl_fail(ctl, CTL_TIMEOUT, "what was waited for has not come in time", "");
        if (now_us >= deadline_us && rc != CTL_OK && left_us > 0)
            return CTL_TIMEOUT;
        number_text(waiting->job.job_id, number);
        word = number; /* a name may mean another job by now */
    }
    return rc;
}

/* Waits for a job, or all jobs of its array. `first`: the first exit code that is not 0. */
static int wait_members(struct ctl *ctl, const struct member *job, bool is_whole,
                        uint64_t deadline_us, struct waiting *waiting, int *first)
{
    char number[NUMBER_BYTES];
    int rc = CTL_OK;

    for (uint32_t i = 0; rc == CTL_OK && is_whole && i < job->array_count; i++) {
        if (job->array_job + i == job->job_id)
            continue;
        number_text(job->array_job + i, number);
        rc = wait_job(ctl, number, deadline_us, waiting);
        if (rc == CTL_OK && *first == 0)
            *first = waiting->exit_code;
    }
    return rc;
}

/* The same for what `word` names. */
static int wait_word(struct ctl *ctl, const char *word, uint64_t deadline_us,
                     struct waiting *waiting, int *first)
{
    int rc = wait_job(ctl, word, deadline_us, waiting);
    const struct member job = waiting->job;

    if (rc != CTL_OK)
        return rc;
    if (*first == 0)
        *first = waiting->exit_code;
    return wait_members(ctl, &job, array_spec_is_whole(word, job.array_job), deadline_us, waiting,
                        first);
}

static int parse_until(struct ctl *ctl, struct waiting *waiting)
{
    const char *until = ctl->options.until;
    struct err err = {0};
    char message[160];

    if (!until || strcmp(until, "finished") == 0)
        return CTL_OK;
    waiting->for_running = strcmp(until, "running") == 0;
    if (waiting->for_running)
        return CTL_OK;
    if (strncmp(until, "step=", 5) == 0) {
        if (options_parse_number("--for step", until + 5, 1, JOB_ID_MAX, &waiting->for_step,
                                 &err) == STATUS_OK)
            return CTL_OK;
        return ctl_fail_err(ctl, CTL_USAGE, &err, "");
    }
    (void)snprintf(message, sizeof message, "--for: '%.60s' should be running, finished or step=N",
                   until);
    return ctl_fail(ctl, CTL_USAGE, message, "");
}

int verb_wait(struct ctl *ctl)
{
    uint64_t timeout_us = ctl->options.timeout_us;
    uint64_t deadline_us =
        timeout_us == OPTION_NO_DURATION ? UINT64_MAX : clock_boot_us() + timeout_us;
    struct buf json = {0};
    struct waiting waiting = {.json = &json};
    int rc = verb_need_job(ctl), first = 0;

    if (rc == CTL_OK)
        rc = parse_until(ctl, &waiting);
    for (int i = 0; rc == CTL_OK && i < ctl->word_count; i++)
        rc = wait_word(ctl, ctl->words[i], deadline_us, &waiting, &first);
    (void)screen_out(&ctl->screen, &json);
    return rc != CTL_OK ? rc : first;
}

static int on_cancelled(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct msg_job_info *info = &msg->job_info;
    struct buf out = {0};

    (void)context;
    if (info->jobs.count != 1)
        return ctl_fail_unexpected(ctl, msg);
    if (ctl->screen.json) {
        output_status_json(info, &out);
    } else {
        const struct part_job *job = &info->jobs.items[0];
        const char *server = ctl_server_shown(ctl);
        char id[JOB_LINE_ID_BYTES];

        job_line_id(job, id);
        if (job->ended)
            screen_message(&ctl->screen, "ended: %s (%s)", job->name, id);
        else
            screen_message(&ctl->screen, "cancelling %s (%s)\n  watch  ddpctl%s%s status -w %llu",
                           job->name, id, server ? " --server " : "", server ? server : "",
                           (unsigned long long)job->job_id);
    }
    return verb_done(ctl, &out);
}

/* What a word of `cancel` names. */
struct cancelled {
    struct member job;
    bool is_whole;             /* the whole array of the job */
    char number[NUMBER_BYTES]; /* of the request that is sent */
};

static int wait_cancelled(struct ctl *ctl, const struct cancelled *cancelled)
{
    struct buf json = {0};
    struct waiting waiting = {.json = &json};
    char number[NUMBER_BYTES];
    int first = 0, rc;

    number_text(cancelled->job.job_id, number);
    rc = wait_job(ctl, number, UINT64_MAX, &waiting);
    if (rc == CTL_OK)
        rc = wait_members(ctl, &cancelled->job, cancelled->is_whole, UINT64_MAX, &waiting, &first);
    buf_free(&json);
    return rc;
}

static int on_member(struct ctl *ctl, const struct msg *msg, void *context)
{
    struct member *member = context;

    if (msg->job_info.jobs.count != 1)
        return ctl_fail_unexpected(ctl, msg);
    *member = member_of(&msg->job_info.jobs.items[0]);
    return CTL_OK;
}

/* Cancels a job, or all jobs of an array: the last ones first, so that none that waits starts when
 * one before it has ended. */
static int cancel_word(struct ctl *ctl, const char *word, struct msg *msg,
                       struct cancelled *cancelled)
{
    struct msg get = {.type = MSG_TYPE_JOB_GET, .job_get = {.job = word}};
    struct member *job = &cancelled->job;
    int rc = verb_check_job(ctl, word);

    if (rc == CTL_OK)
        rc = verb_ask(ctl, &get, MSG_TYPE_JOB_INFO, on_member, job);
    if (rc != CTL_OK)
        return rc;
    cancelled->is_whole = array_spec_is_whole(word, job->array_job);
    msg->cancel.job = cancelled->number; /* a name may mean another job by now */
    if (!cancelled->is_whole) {
        number_text(job->job_id, cancelled->number);
        return verb_ask(ctl, msg, MSG_TYPE_JOB_INFO, on_cancelled, NULL);
    }
    for (uint32_t i = job->array_count; rc == CTL_OK && i-- > 0;) {
        number_text(job->array_job + i, cancelled->number);
        rc = verb_ask(ctl, msg, MSG_TYPE_JOB_INFO, on_cancelled, NULL);
    }
    return rc;
}

int verb_cancel(struct ctl *ctl)
{
    const struct options *options = &ctl->options;
    struct err err = {0};
    uint32_t signal = 15;
    int rc = verb_need_job(ctl);

    if (rc == CTL_OK && options->signal &&
        signal_parse(options->signal, &signal, &err) != STATUS_OK)
        rc = ctl_fail_err(ctl, CTL_USAGE, &err, "");
    for (int i = 0; rc == CTL_OK && i < ctl->word_count; i++) {
        struct cancelled cancelled = {0};
        struct msg msg = {.type = MSG_TYPE_CANCEL,
                          .cancel = {.signal = options->now ? 9 : signal,
                                     .grace_us = options->now ? 0
                                                 : options->grace_us == OPTION_NO_DURATION
                                                     ? -1
                                                     : (int64_t)options->grace_us}};

        rc = cancel_word(ctl, ctl->words[i], &msg, &cancelled);
        if (rc == CTL_OK && options->wait)
            rc = wait_cancelled(ctl, &cancelled);
    }
    return rc;
}
