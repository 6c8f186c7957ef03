/* The content of a job's page, read from the server when somebody opens the page: the job and its
 * ranks, its events, metrics of all generations, the end of one rank's log. It is kept, so that a
 * reload reads only what is new. Pure, apart from the heap: it decides what to request next and
 * takes the answers. */
#ifndef DDPCTL_HTTP_JOB_H
#define DDPCTL_HTTP_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "common/msg.h"
#include "ddpctl/job_pages.h"
#include "ddpctl/report_data.h"
#include "ddpctl/report_events.h"

enum { HTTP_LOG_BYTES_MAX = 64 * 1024, HTTP_LOG_LINES = 100 };

enum http_job_stage {
    HTTP_JOB_DONE, /* no request is needed */
    HTTP_JOB_INFO,
    HTTP_JOB_EVENTS,
    HTTP_JOB_METRICS,
    HTTP_JOB_LOG,
};

struct http_job {
    uint64_t job_id;
    int64_t rank_asked; /* -1: none was given: the failed rank, or rank 0 */
    enum http_job_stage stage;
    char job_text[24];
    uint64_t read_us; /* when the last reading was complete; 0: never */
    uint64_t used_us; /* when somebody last opened it */
    int code;         /* HTTP status of the last reading: 200, 404, 502 */
    char problem[512];

    struct job_pages pages, next; /* the complete one, and the one being read */
    bool has_events;              /* `events` has been set up */
    struct report_events events;
    struct report_data data;
    struct metric_lines lines;
    uint32_t generation; /* whose metrics are being read */
    uint64_t offset;
    uint32_t chunks; /* number of chunks in this reading so far */
    bool is_partial; /* there are more metrics than one reading reads */
    uint32_t log_rank, log_generation;
    uint64_t log_offset;
    bool log_begun;
    struct buf log, next_log;
    char log_problem[REASON_BYTES_MAX];
};

/* `job` must be zeroed. */
void http_job_init(struct http_job *job, uint64_t job_id, int64_t rank);
void http_job_free(struct http_job *job);
/* Starts a new reading: sets the stage. */
void http_job_begin(struct http_job *job);
/* The request of this stage, borrowing from `job`. */
void http_job_ask(struct http_job *job, struct msg *msg);
/* Takes the answer, which may be an error, and moves on to the next stage. */
void http_job_take(struct http_job *job, const struct msg *msg, uint64_t now_us);
/* Ends the reading: the server does not answer. */
void http_job_fail(struct http_job *job, int code, const char *problem, uint64_t now_us);
/* Writes the page; only if `code` is 200. */
void http_job_page(const struct http_job *job, int64_t now_ms, uint32_t refresh_s, struct buf *out);

#endif
