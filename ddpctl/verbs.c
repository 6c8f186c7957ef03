/* The verbs that show something: ps, status, events, wait; and cancel. */
#include "ddpctl/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/io/conn.h"
#include "ddpctl/job_pages.h"
#include "ddpctl/request.h"
#include "ddpctl/units.h"

#define NEWS_WAIT_US                                                                               \
    20000000u /* how long the server may wait before it answers that nothing is
                                * new */
#define PAGE 500u
#define WATCH_INTERVAL_MS 1000

int verb_too_many(struct ctl *ctl, int most)
{
    char message[256];

    if (ctl->word_count <= most)
        return 0;
    (void)snprintf(message, sizeof message, "%s: nothing is known about '%.80s'", ctl->verb_name,
                   ctl->words[most]);
    return ctl_fail(ctl, CTL_USAGE, message, "see ddpctl help");
}

/* Checks the form of a word that names a job. */
static int check_job_name(struct ctl *ctl, const char *word)
{
    if (strlen(word) > 0 && strlen(word) < JOB_NAME_BYTES_MAX)
        return 0;
    return ctl_fail(ctl, CTL_USAGE, "a job is named by its number, its name or @last",
                    "ddpctl ps -a lists them");
}

int verb_need_job(struct ctl *ctl)
{
    if (ctl->word_count == 0) {
        char message[64];

        (void)snprintf(message, sizeof message, "%s: which job?", ctl->verb_name);
        return ctl_fail(ctl, CTL_USAGE, message,
                        "name it by number, name or @last; ddpctl ps -a lists them");
    }
    return check_job_name(ctl, ctl->words[0]);
}

static int ask(struct ctl *ctl, struct msg *msg, enum msg_type answer,
               int (*on_answer)(struct ctl *, const struct msg *, void *), void *context)
{
    struct request request = {.msg = msg,
                              .patience_us = 5000000,
                              .answer = answer,
                              .on_answer = on_answer,
                              .context = context};

    return request_run(ctl, &request);
}

static int done(struct ctl *ctl, struct buf *out)
{
    return screen_out(&ctl->screen, out) == STATUS_OK ? CTL_OK : CTL_FAILED;
}

/* Before a view is drawn again: wipes the last one, at a terminal. */
static void begin_picture(struct ctl *ctl, struct buf *out)
{
    if (ctl->options.watch && ctl->screen.out_is_tty && !ctl->screen.json)
        buf_add_text(out, "\x1b[H\x1b[2J");
}

static void pause_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&pause, NULL);
}

/* ps: the pages of the list are collected in an arena, then shown as one. */

struct job_page {
    struct arena *arena;
    struct part_job *jobs;
    uint32_t count, capacity;
    uint64_t last_id;
    bool more;
};

static bool copy_job(struct job_page *page, const struct part_job *job)
{
    struct part_job *kept;

    if (page->count == page->capacity) {
        uint32_t capacity = page->capacity ? page->capacity * 2 : PAGE;
        struct part_job *grown = realloc(page->jobs, capacity * sizeof *grown);

        if (!grown)
            return false;
        page->jobs = grown;
        page->capacity = capacity;
    }
    kept = &page->jobs[page->count++];
    *kept = *job;
    kept->name = arena_text(page->arena, job->name, strlen(job->name));
    kept->user = arena_text(page->arena, job->user, strlen(job->user));
    kept->where = arena_text(page->arena, job->where, strlen(job->where));
    kept->reason = arena_text(page->arena, job->reason, strlen(job->reason));
    return kept->name && kept->user && kept->where && kept->reason;
}

static int on_jobs(struct ctl *ctl, const struct msg *msg, void *context)
{
    struct job_page *page = context;
    uint64_t before = page->last_id;

    for (uint32_t i = 0; i < msg->jobs.jobs.count; i++) {
        const struct part_job *job = &msg->jobs.jobs.items[i];

        if (job->job_id <= before)
            continue;
        if (!copy_job(page, job))
            return ctl_fail(ctl, CTL_FAILED, "out of memory", "");
        if (job->job_id > page->last_id)
            page->last_id = job->job_id;
    }
    page->more = msg->jobs.more && page->last_id > before;
    return CTL_OK;
}

static void show_jobs(struct ctl *ctl, const struct job_page *page, struct buf *out)
{
    struct msg_jobs jobs = {.jobs = {.items = page->jobs, .count = page->count}};
    struct output_style style = screen_style(&ctl->screen);

    if (ctl->screen.json) {
        output_jobs_json(&jobs, out);
    } else if (ctl->screen.quiet) {
        for (uint32_t i = 0; i < page->count; i++)
            buf_printf(out, "%llu\n", (unsigned long long)page->jobs[i].job_id);
    } else if (page->count == 0) {
        screen_message(&ctl->screen, "%s",
                       ctl->options.all ? "no jobs"
                                        : "no jobs wait or run; ddpctl ps -a shows ended ones");
    } else {
        output_jobs(&jobs, &style, out);
    }
}

static int ps_once(struct ctl *ctl)
{
    struct arena arena = {0};
    struct job_page page = {.arena = &arena, .more = true};
    struct buf out = {0};
    int rc = CTL_OK;

    while (rc == CTL_OK && page.more) {
        struct msg msg = {
            .type = MSG_TYPE_JOB_LIST,
            .job_list = {.all = ctl->options.all, .after_id = page.last_id, .limit = PAGE},
        };

        rc = ask(ctl, &msg, MSG_TYPE_JOBS, on_jobs, &page);
    }
    if (rc == CTL_OK) {
        begin_picture(ctl, &out);
        show_jobs(ctl, &page, &out);
        rc = done(ctl, &out);
    }
    free(page.jobs);
    arena_reset(&arena);
    return rc;
}

int verb_ps(struct ctl *ctl)
{
    int rc = verb_too_many(ctl, 0);

    while (rc == CTL_OK) {
        rc = ps_once(ctl);
        if (!ctl->options.watch)
            break;
        pause_ms(WATCH_INTERVAL_MS);
    }
    return rc;
}

struct seen {
    uint64_t version;
    bool ended;
};

static int show_status(struct ctl *ctl, const struct msg_job_info *info, struct seen *seen)
{
    struct output_style style = screen_style(&ctl->screen);
    struct buf out = {0};

    if (info->version == seen->version)
        return CTL_OK; /* the server has waited, and nothing is new */
    seen->version = info->version;
    seen->ended = info->jobs.items[0].ended;
    begin_picture(ctl, &out);
    if (ctl->screen.json)
        output_status_json(info, &out);
    else if (ctl->screen.quiet)
        buf_printf(&out, "%s\n", job_state_name(info->jobs.items[0].state));
    else
        output_status(info, &style, &out);
    return done(ctl, &out);
}

int verb_status(struct ctl *ctl)
{
    struct seen seen = {0};
    int rc = verb_need_job(ctl);

    if (rc == CTL_OK)
        rc = verb_too_many(ctl, 1);
    while (rc == CTL_OK) {
        struct msg msg = {.type = MSG_TYPE_JOB_GET,
                          .job_get = {.job = ctl->words[0],
                                      .after_version = seen.version,
                                      .wait_us = seen.version ? NEWS_WAIT_US : 0}};
        struct request request = {.msg = &msg,
                                  .patience_us =
                                      ctl->options.watch ? ctl->options.patience_us : 5000000,
                                  .first_is_patient = seen.version > 0,
                                  .server_wait_us = NEWS_WAIT_US,
                                  .answer = MSG_TYPE_JOB_INFO};
        struct job_pages pages = {0};

        rc = job_pages_read(ctl, &request, &pages);
        if (rc == CTL_OK)
            rc = show_status(ctl, &pages.info, &seen);
        job_pages_free(&pages);
        if (!ctl->options.watch || seen.ended)
            break;
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
    return done(ctl, &out);
}

static int on_events(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct msg_events *events = &msg->events;
    struct event_page *page = context;
    struct buf out = {0};

    page->count = events->events.count;
    if (page->count > 0)
        page->last_id = events->events.items[page->count - 1].id;
    for (uint32_t i = 0; ctl->screen.json && i < page->count; i++) {
        output_event_line_json(&events->events.items[i], ctl->options.follow ? &out : &page->items);
        if (!ctl->options.follow && page->items.byte_count > 0)
            page->items.bytes[page->items.byte_count - 1] = ','; /* replaces the line feed */
    }
    if (!ctl->screen.json)
        output_events(events, &out);
    return done(ctl, &out);
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
    int rc = check_job_name(ctl, word);

    return rc != CTL_OK ? rc : ask(ctl, &msg, MSG_TYPE_JOB_INFO, on_job_id, job_id);
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
                                  .patience_us = ctl->options.patience_us,
                                  .first_is_patient = page.last_id > 0,
                                  .server_wait_us = NEWS_WAIT_US,
                                  .answer = MSG_TYPE_EVENTS,
                                  .on_answer = on_events,
                                  .context = &page};

        rc = request_run(ctl, &request);
        if (!ctl->options.follow && page.count == 0)
            break;
    }
    if (rc == CTL_OK && ctl->screen.json && !ctl->options.follow)
        rc = show_all_events(ctl, &page);
    buf_free(&page.items);
    return rc;
}

struct waiting {
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

static int wait_job(struct ctl *ctl, const char *word, uint64_t deadline_us,
                    struct waiting *waiting)
{
    int rc = check_job_name(ctl, word);

    waiting->version = 0;
    waiting->met = false;
    while (rc == CTL_OK && !waiting->met) {
        uint64_t now_us = clock_boot_us(), server_wait_us = deadline_us - now_us < NEWS_WAIT_US
                                                                ? deadline_us - now_us
                                                                : NEWS_WAIT_US;
        uint64_t patience_us = ctl->options.patience_us;
        struct msg msg = {.type = MSG_TYPE_JOB_GET,
                          .job_get = {.job = word, .after_version = waiting->version}};
        struct request request = {.msg = &msg,
                                  .first_is_patient = waiting->version > 0,
                                  .server_wait_us = server_wait_us,
                                  .answer = MSG_TYPE_JOB_INFO,
                                  .on_answer = on_wait,
                                  .context = waiting};

        if (now_us >= deadline_us)
            return ctl_fail(ctl, CTL_TIMEOUT, "what was waited for has not come in time", "");
        msg.job_get.wait_us = waiting->version ? server_wait_us : 0;
        request.patience_us =
            deadline_us - now_us < patience_us ? deadline_us - now_us : patience_us;
        rc = request_run(ctl, &request);
        if (rc != CTL_OK && clock_boot_us() >= deadline_us)
            return CTL_TIMEOUT;
    }
    return rc;
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
    for (int i = 0; rc == CTL_OK && i < ctl->word_count; i++) {
        rc = wait_job(ctl, ctl->words[i], deadline_us, &waiting);
        if (rc == CTL_OK && first == 0)
            first = waiting.exit_code;
    }
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

        screen_message(&ctl->screen, "%s %s (%llu)%s", job->ended ? "ended:" : "cancelling",
                       job->name, (unsigned long long)job->job_id,
                       job->ended ? "" : "\n  watch  ddpctl status -w");
    }
    return done(ctl, &out);
}

static int wait_cancelled(struct ctl *ctl, const char *word)
{
    struct buf json = {0};
    struct waiting waiting = {.json = &json};
    int rc = wait_job(ctl, word, UINT64_MAX, &waiting);

    buf_free(&json);
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
        struct msg msg = {.type = MSG_TYPE_CANCEL,
                          .cancel = {.job = ctl->words[i],
                                     .signal = options->now ? 9 : signal,
                                     .grace_us = options->now ? 0
                                                 : options->grace_us == OPTION_NO_DURATION
                                                     ? -1
                                                     : (int64_t)options->grace_us}};

        rc = check_job_name(ctl, ctl->words[i]);
        if (rc == CTL_OK)
            rc = ask(ctl, &msg, MSG_TYPE_JOB_INFO, on_cancelled, NULL);
        if (rc == CTL_OK && options->wait)
            rc = wait_cancelled(ctl, ctl->words[i]);
    }
    return rc;
}
