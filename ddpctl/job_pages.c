#include "ddpctl/job_pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/page.h"

/* Replaces `*text` by a copy in the arena. False: no memory, and `*text` is unchanged. */
static bool keep(struct job_pages *pages, const char **text)
{
    const char *copy = arena_text(&pages->arena, *text, strlen(*text));

    if (copy != NULL)
        *text = copy;
    return copy != NULL;
}

static bool keep_job(struct job_pages *pages, const struct msg_job_info *info)
{
    const char **argv = arena_alloc(&pages->arena, (info->argv.count + 1) * sizeof *argv);
    bool is_kept = argv != NULL;

    pages->job = info->jobs.items[0];
    pages->info = *info;
    pages->info.jobs.items = &pages->job;
    pages->info.argv.items = argv;
    for (uint32_t i = 0; is_kept && i < info->argv.count; i++) {
        argv[i] = info->argv.items[i];
        is_kept = keep(pages, &argv[i]);
    }
    return is_kept && keep(pages, &pages->job.name) && keep(pages, &pages->job.user) &&
           keep(pages, &pages->job.where) && keep(pages, &pages->job.reason) &&
           keep(pages, &pages->job.straggler) && keep(pages, &pages->info.failed_node) &&
           keep(pages, &pages->info.tail) && keep(pages, &pages->info.cwd);
}

static bool keep_ranks(struct job_pages *pages, const struct msg_job_info *info)
{
    struct part_job_rank *ranks =
        realloc(pages->ranks, (pages->rank_count + info->ranks.count + 1u) * sizeof *ranks);

    if (ranks == NULL)
        return false;
    pages->ranks = ranks;
    for (uint32_t i = 0; i < info->ranks.count; i++) {
        struct part_job_rank *kept = &ranks[pages->rank_count++];

        *kept = info->ranks.items[i];
        if (!keep(pages, &kept->node))
            return false;
    }
    return true;
}

/* If the job has a new generation since the first page, the list begins again. */
bool job_pages_take(struct job_pages *pages, const struct msg_job_info *info)
{
    bool is_kept = true;

    if (pages->next_rank > 0 && info->jobs.items[0].generation > pages->job.generation) {
        pages->next_rank = pages->rank_count = 0;
        pages->info.more_ranks = true;
        return true;
    }
    if (pages->next_rank == 0)
        is_kept = keep_job(pages, info);
    is_kept = is_kept && keep_ranks(pages, info);
    pages->info.ranks.items = pages->ranks;
    pages->info.ranks.count = pages->rank_count;
    pages->info.more_ranks = false;
    if (info->ranks.count > 0) {
        const uint32_t next = info->ranks.items[info->ranks.count - 1].rank + 1;

        pages->info.more_ranks = page_goes_on(info->more_ranks, pages->next_rank, next);
        pages->next_rank = next;
    }
    return is_kept;
}

static int on_page(struct ctl *ctl, const struct msg *msg, void *context)
{
    if (msg->job_info.jobs.count != 1)
        return ctl_fail_unexpected(ctl, msg);
    return job_pages_take(context, &msg->job_info) ? CTL_OK
                                                   : ctl_fail(ctl, CTL_FAILED, "out of memory", "");
}

int job_pages_read(struct ctl *ctl, struct request *request, struct job_pages *pages)
{
    const char *const word = request->msg->job_get.job;
    char number[24];
    int rc;

    request->on_answer = on_page;
    request->context = pages;
    do {
        request->msg->job_get.first_rank = pages->next_rank;
        rc = request_run(ctl, request);
        (void)snprintf(number, sizeof number, "%llu", (unsigned long long)pages->job.job_id);
        request->msg->job_get.job = number;      /* a name may mean another job by now */
        request->msg->job_get.after_version = 0; /* only the first page waits for news */
        request->msg->job_get.wait_us = 0;
    } while (rc == CTL_OK && pages->info.more_ranks);
    request->msg->job_get.job = word;
    return rc;
}

void job_pages_free(struct job_pages *pages)
{
    free(pages->ranks);
    arena_reset(&pages->arena);
    *pages = (struct job_pages){0};
}
