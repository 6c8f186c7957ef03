#include "ddpctl/http_job.h"

#include <stdio.h>
#include <string.h>

#define CHUNKS_MAX 128u /* most chunks of metrics in one reading: 4 MiB */
#define LOG_CHUNKS_MAX 8u

static void on_line(void *owner, const struct metric_line *line)
{
    report_data_take(owner, line);
}

void http_job_init(struct http_job *job, uint64_t job_id, int64_t rank)
{
    job->job_id = job_id;
    job->rank_asked = rank;
    job->generation = 1;
    job->lines = (struct metric_lines){.take = on_line, .owner = &job->data};
    (void)snprintf(job->job_text, sizeof job->job_text, "%llu", (unsigned long long)job_id);
}

void http_job_free(struct http_job *job)
{
    job_pages_free(&job->pages);
    job_pages_free(&job->next);
    report_data_free(&job->data);
    metric_lines_close(&job->lines);
    buf_free(&job->log);
    buf_free(&job->next_log);
}

void http_job_begin(struct http_job *job)
{
    job_pages_free(&job->next);
    job->chunks = 0;
    job->is_partial = false;
    job->stage = HTTP_JOB_INFO;
}

static void ask_log(struct http_job *job, struct msg *msg)
{
    bool is_metrics = job->stage == HTTP_JOB_METRICS;

    msg->type = MSG_TYPE_LOG_READ;
    msg->log_read = (struct msg_log_read){
        .request_id = 1,
        .job_id = job->job_id,
        .generation = is_metrics ? job->generation : job->log_generation,
        .rank = is_metrics ? 0 : job->log_rank,
        .offset = is_metrics ? job->offset : job->log_offset,
        .tail_lines = is_metrics || job->log_begun ? 0 : HTTP_LOG_LINES,
        .bytes_max = LOG_CHUNK_BYTES_MAX,
        .what = is_metrics ? LOG_METRICS : LOG_OUTPUT,
    };
}

void http_job_ask(struct http_job *job, struct msg *msg)
{
    *msg = (struct msg){0};
    switch (job->stage) {
    case HTTP_JOB_INFO:
        msg->type = MSG_TYPE_JOB_GET;
        msg->job_get =
            (struct msg_job_get){.job = job->job_text, .first_rank = job->next.next_rank};
        break;
    case HTTP_JOB_EVENTS:
        msg->type = MSG_TYPE_EVENT_LIST;
        msg->event_list = (struct msg_event_list){
            .job_id = job->job_id, .after_id = job->events.last_id, .limit = REPORT_EVENTS_PAGE};
        break;
    case HTTP_JOB_METRICS:
    case HTTP_JOB_LOG:
        ask_log(job, msg);
        break;
    case HTTP_JOB_DONE:
        break;
    }
}

void http_job_fail(struct http_job *job, int code, const char *problem, uint64_t now_us)
{
    job->stage = HTTP_JOB_DONE;
    job->code = code;
    job->read_us = now_us;
    (void)snprintf(job->problem, sizeof job->problem, "%s", problem);
}

static void finish(struct http_job *job, uint64_t now_us)
{
    job->stage = HTTP_JOB_DONE;
    job->code = 200;
    job->read_us = now_us;
    buf_free(&job->log);
    job->log = job->next_log;
    job->next_log = (struct buf){0};
}

/* Starts to read a log: that of the requested rank, else of the failed rank, else of rank 0. */
static void begin_log(struct http_job *job)
{
    const struct msg_job_info *info = &job->pages.info;
    const struct part_job *part = &job->pages.job;

    job->stage = HTTP_JOB_LOG;
    job->chunks = 0;
    job->log_generation = part->generation;
    job->log_rank = job->rank_asked >= 0                    ? (uint32_t)job->rank_asked
                    : part->ended && info->failed_rank >= 0 ? (uint32_t)info->failed_rank
                                                            : 0;
    job->log_offset = 0;
    job->log_begun = false;
    job->log_problem[0] = '\0';
    buf_drop(&job->next_log, job->next_log.byte_count);
}

static void after_events(struct http_job *job, uint64_t now_us)
{
    if (job->pages.job.generation == 0)
        finish(job, now_us); /* the job has never run */
    else
        job->stage = HTTP_JOB_METRICS;
}

static void take_info(struct http_job *job, const struct msg_job_info *info, uint64_t now_us)
{
    if (info->jobs.count != 1 || !job_pages_take(&job->next, info)) {
        http_job_fail(job, 502, "the server's answer about the job cannot be kept", now_us);
        return;
    }
    if (job->next.info.more_ranks)
        return;
    job_pages_free(&job->pages);
    job->pages = job->next;
    job->next = (struct job_pages){0};
    job->pages.info.jobs.items = &job->pages.job; /* `job` was copied to here */
    if (!job->has_events)
        report_events_init(&job->events, &job->pages.job);
    job->has_events = true;
    job->stage = HTTP_JOB_EVENTS;
}

static void note_problem(struct http_job *job, const char *problem)
{
    struct report_data *data = &job->data;

    if (data->problem_count < REPORT_PROBLEMS_MAX)
        (void)snprintf(data->problems[data->problem_count++], sizeof data->problems[0],
                       "Generation %u: %s", job->generation, problem);
}

/* The metrics file of this generation has no more for now: goes on to the next generation, or to
 * the log. */
static void end_metrics(struct http_job *job)
{
    if (job->generation < job->pages.job.generation) {
        job->generation++;
        job->offset = 0;
        return;
    }
    begin_log(job);
}

static void take_metrics(struct http_job *job, const struct msg_log_data *data)
{
    bool is_last = job->generation >= job->pages.job.generation;

    if (data->problem[0] != '\0') {
        if (!is_last) /* the current generation's metrics may be readable later */
            note_problem(job, data->problem);
        end_metrics(job);
        return;
    }
    if (data->offset >= job->offset && data->bytes.count > 0) {
        metric_lines_take(&job->lines, job->generation, 0, data->bytes.items, data->bytes.count,
                          data->is_final);
        job->offset = data->offset + data->bytes.count;
    } else if (data->is_final && !is_last) {
        metric_lines_take(&job->lines, job->generation, 0, "", 0, true);
    }
    job->chunks++;
    if (data->bytes.count == 0 || data->is_final) {
        end_metrics(job);
    } else if (job->chunks == CHUNKS_MAX) {
        job->is_partial = true;
        begin_log(job);
    }
}

static void take_log(struct http_job *job, const struct msg_log_data *data, uint64_t now_us)
{
    job->log_begun = true;
    (void)snprintf(job->log_problem, sizeof job->log_problem, "%s", data->problem);
    buf_add(&job->next_log, data->bytes.items, data->bytes.count);
    if (job->next_log.byte_count > HTTP_LOG_BYTES_MAX)
        buf_drop(&job->next_log, job->next_log.byte_count - HTTP_LOG_BYTES_MAX);
    job->log_offset = data->offset + data->bytes.count;
    if (data->bytes.count == 0 || data->is_final || ++job->chunks == LOG_CHUNKS_MAX)
        finish(job, now_us);
}

static void take_error(struct http_job *job, const struct msg_error *error, uint64_t now_us)
{
    char problem[512];

    if (job->stage == HTTP_JOB_METRICS) {
        if (job->generation < job->pages.job.generation)
            note_problem(job, error->message);
        end_metrics(job);
    } else if (job->stage == HTTP_JOB_LOG) {
        (void)snprintf(job->log_problem, sizeof job->log_problem, "%.*s", REASON_BYTES_MAX - 1,
                       error->message);
        finish(job, now_us);
    } else {
        (void)snprintf(problem, sizeof problem, "%s", error->message);
        http_job_fail(job, strcmp(error->code, "not_found") == 0 ? 404 : 502, problem, now_us);
    }
}

void http_job_take(struct http_job *job, const struct msg *msg, uint64_t now_us)
{
    if (msg->type == MSG_TYPE_ERROR)
        take_error(job, &msg->error, now_us);
    else if (msg->type == MSG_TYPE_JOB_INFO && job->stage == HTTP_JOB_INFO)
        take_info(job, &msg->job_info, now_us);
    else if (msg->type == MSG_TYPE_EVENTS && job->stage == HTTP_JOB_EVENTS) {
        if (!report_events_take(&job->events, &msg->events))
            after_events(job, now_us);
    } else if (msg->type == MSG_TYPE_LOG_DATA && job->stage == HTTP_JOB_METRICS)
        take_metrics(job, &msg->log_data);
    else if (msg->type == MSG_TYPE_LOG_DATA && job->stage == HTTP_JOB_LOG)
        take_log(job, &msg->log_data, now_us);
    else
        http_job_fail(job, 502, "the server answered what nobody asked for", now_us);
}

void http_job_page(const struct http_job *job, int64_t now_ms, uint32_t refresh_s, struct buf *out)
{
    const struct report_live live = {.refresh_s = refresh_s,
                                     .rank = job->log_rank,
                                     .generation = job->log_generation,
                                     .log = job->log.bytes,
                                     .log_bytes = job->log.byte_count,
                                     .log_problem = job->pages.job.generation == 0
                                                        ? "The job has not run yet."
                                                        : job->log_problem,
                                     .is_partial = job->is_partial};
    struct part_event ordered[REPORT_EVENTS_MAX];
    struct report_page page = {.info = &job->pages.info,
                               .data = &job->data,
                               .lines = job->lines.good,
                               .bad_lines = job->lines.bad,
                               .now_ms = now_ms,
                               .live = &live};

    report_events_show(&job->events, ordered, &page);
    report_page_write(&page, out);
}
