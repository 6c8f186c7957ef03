/* ps: the pages of the list are collected in an arena, then shown as one. */
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "ddpctl/page.h"
#include "ddpctl/verbs.h"

#define PAGE 500u

struct job_page {
    struct arena *arena;
    struct part_job *jobs;
    uint32_t count, capacity;
    uint64_t last_id;
    uint64_t array_job; /* 0: all jobs, else only those of this array */
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
    kept->straggler = arena_text(page->arena, job->straggler, strlen(job->straggler));
    kept->reason = arena_text(page->arena, job->reason, strlen(job->reason));
    return kept->name && kept->user && kept->where && kept->straggler && kept->reason;
}

static int on_jobs(struct ctl *ctl, const struct msg *msg, void *context)
{
    struct job_page *page = context;
    uint64_t before = page->last_id;

    for (uint32_t i = 0; i < msg->jobs.jobs.count; i++) {
        const struct part_job *job = &msg->jobs.jobs.items[i];

        if (job->job_id <= before)
            continue;
        if (page->array_job != 0 && job->array_job != page->array_job) {
            page->more = false; /* the jobs of an array have adjacent ids */
            return CTL_OK;
        }
        if (!copy_job(page, job))
            return ctl_fail(ctl, CTL_FAILED, "out of memory", "");
        if (job->job_id > page->last_id)
            page->last_id = job->job_id;
    }
    page->more = page_goes_on(msg->jobs.more, before, page->last_id);
    return CTL_OK;
}

static void show_jobs(struct ctl *ctl, const struct job_page *page, struct buf *out)
{
    struct msg_jobs jobs = {.jobs = {.items = page->jobs, .count = page->count}};
    struct output_style style = screen_style(&ctl->screen);

    style.folds_arrays = page->array_job == 0 && !ctl->options.all && !ctl->options.expand;
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

int verb_list_once(struct ctl *ctl, uint64_t array_job, bool *any_left)
{
    struct arena arena = {0};
    struct job_page page = {.arena = &arena,
                            .array_job = array_job,
                            .last_id = array_job != 0 ? array_job - 1 : 0,
                            .more = true};
    struct buf out = {0};
    int rc = CTL_OK;

    while (rc == CTL_OK && page.more) {
        struct msg msg = {
            .type = MSG_TYPE_JOB_LIST,
            .job_list = {.all = ctl->options.all || array_job != 0,
                         .after_id = page.last_id,
                         .limit = PAGE},
        };

        rc = verb_ask(ctl, &msg, MSG_TYPE_JOBS, on_jobs, &page);
    }
    if (rc == CTL_OK) {
        verb_begin_picture(ctl, &out);
        show_jobs(ctl, &page, &out);
        rc = verb_done(ctl, &out);
    }
    *any_left = false;
    for (uint32_t i = 0; i < page.count; i++)
        *any_left = *any_left || !page.jobs[i].ended;
    free(page.jobs);
    arena_reset(&arena);
    return rc;
}

int verb_ps(struct ctl *ctl)
{
    int rc = verb_too_many(ctl, 0);
    bool any_left;

    while (rc == CTL_OK) {
        rc = verb_list_once(ctl, 0, &any_left);
        if (!ctl->options.watch)
            break;
        verb_pause_ms(VERB_WATCH_INTERVAL_MS);
    }
    return rc;
}
