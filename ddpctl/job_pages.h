/* A job with all its ranks, put together from the pages of the server's answer. */
#ifndef DDPCTL_JOB_PAGES_H
#define DDPCTL_JOB_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "ddpctl/request.h"

struct job_pages {
    struct msg_job_info info; /* with all ranks, in the arena and in `ranks` */
    struct arena arena;
    struct part_job job;
    struct part_job_rank *ranks;
    uint32_t rank_count, next_rank;
};

/* Takes one answer, which has exactly one job. While info.more_ranks, the next request is for
 * `next_rank`. False: no memory. */
bool job_pages_take(struct job_pages *pages, const struct msg_job_info *info);
/* Sends `request`, a job_get, and repeats it for further pages. Sets on_answer and context of
 * `request`. Returns the exit code. `pages` must be zeroed; free it with job_pages_free. */
int job_pages_read(struct ctl *ctl, struct request *request, struct job_pages *pages);
void job_pages_free(struct job_pages *pages);

#endif
