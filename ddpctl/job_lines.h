/* The lines of `ddpctl ps`: one for each job, or one for all listed jobs of an array. Pure. */
#ifndef DDPCTL_JOB_LINES_H
#define DDPCTL_JOB_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/msg.h"

#define JOB_LINE_ID_BYTES 48

struct job_line {
    struct part_job job; /* a line for several jobs: the sum of ranks, and `note` as the reason */
    char id[JOB_LINE_ID_BYTES]; /* "41", "12_3", "12_[0-2,7]" */
    char note[REASON_BYTES_MAX];
};

/* "41", or "12_3" for a job of an array. */
void job_line_id(const struct part_job *job, char out[JOB_LINE_ID_BYTES]);
/* `lines`: [count]; they borrow from `jobs`, which is sorted by id. Returns how many there are. */
uint32_t job_lines_make(const struct part_job *jobs, uint32_t count, bool is_folded,
                        struct job_line *lines);

#endif
