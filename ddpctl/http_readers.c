#include "ddpctl/http_readers.h"

#include <stdlib.h>

#include "common/io/conn.h"

#define ANSWER_US 10000000u
#define AGE_ENDED_US 10000000u /* an ended job hardly changes */

static void give(struct http_readers *readers);

static void finish(struct http_reader *reader)
{
    struct http_readers *readers = reader->readers;
    const struct http_job *job = reader->job;

    reader->job = NULL;
    client_expect(&reader->client, 0);
    readers->on_read(readers->owner, job);
    give(readers);
}

static void ask(struct http_reader *reader)
{
    struct msg msg;
    struct err err = {0};

    http_job_ask(reader->job, &msg);
    if (client_send(&reader->client, &msg, &err) == STATUS_OK)
        client_expect(&reader->client, ANSWER_US);
}

static void on_open(struct client *client)
{
    struct http_reader *reader = client->owner;

    if (reader->job != NULL)
        ask(reader);
}

static void on_message(struct client *client, const struct msg *msg)
{
    struct http_reader *reader = client->owner;

    if (reader->job == NULL)
        return;
    http_job_take(reader->job, msg, clock_boot_us());
    if (reader->job->stage == HTTP_JOB_DONE)
        finish(reader);
    else
        ask(reader);
}

static void on_waiting(struct client *client, const struct err *err)
{
    struct http_reader *reader = client->owner;

    (void)err;
    if (reader->job == NULL)
        return;
    http_job_fail(reader->job, 502, "the server does not answer", clock_boot_us());
    finish(reader);
}

/* Our key is not accepted any more. The connection for the lists fails in the same way, and that
 * ends the program. */
static void on_failed(struct client *client, const struct err *err)
{
    on_waiting(client, err);
}

static const struct client_handlers handlers = {
    .on_open = on_open, .on_message = on_message, .on_waiting = on_waiting, .on_failed = on_failed};

static void start(struct http_reader *reader, struct http_job *job)
{
    struct http_readers *readers = reader->readers;

    reader->job = job;
    http_job_begin(job);
    if (!reader->is_open) {
        reader->is_open = true;
        client_open(&reader->client, readers->loop, readers->server, UINT64_MAX, &handlers, reader);
        reader->client.first_is_patient = true;
    } else if (reader->client.open) {
        ask(reader);
    }
}

/* Gives each idle reader a job that waits to be read. */
static void give(struct http_readers *readers)
{
    for (size_t i = 0; i < HTTP_READERS_MAX && !readers->is_closed; i++) {
        struct http_reader *reader = &readers->items[i];

        reader->readers = readers;
        if (reader->job != NULL || (reader->is_open && reader->client.closing))
            continue;
        for (size_t at = 0; at < HTTP_JOBS_MAX; at++) {
            if (!readers->is_wanted[at])
                continue;
            readers->is_wanted[at] = false;
            start(reader, readers->jobs[at]);
            break;
        }
    }
}

static bool is_read_now(const struct http_readers *readers, const struct http_job *job)
{
    for (size_t i = 0; i < HTTP_READERS_MAX; i++)
        if (readers->items[i].job == job)
            return true;
    return false;
}

static size_t find(const struct http_readers *readers, uint64_t job_id, int64_t rank)
{
    for (size_t i = 0; i < HTTP_JOBS_MAX; i++)
        if (readers->jobs[i] != NULL && readers->jobs[i]->job_id == job_id &&
            readers->jobs[i]->rank_asked == rank)
            return i;
    return HTTP_JOBS_MAX;
}

/* A free place, or the place of the job that nobody has opened for the longest time. */
static size_t make_place(struct http_readers *readers)
{
    size_t oldest = HTTP_JOBS_MAX;

    for (size_t i = 0; i < HTTP_JOBS_MAX; i++) {
        if (readers->jobs[i] == NULL)
            return i;
        if (readers->is_wanted[i] || is_read_now(readers, readers->jobs[i]))
            continue;
        if (oldest == HTTP_JOBS_MAX || readers->jobs[i]->used_us < readers->jobs[oldest]->used_us)
            oldest = i;
    }
    if (oldest < HTTP_JOBS_MAX) {
        http_job_free(readers->jobs[oldest]);
        free(readers->jobs[oldest]);
        readers->jobs[oldest] = NULL;
    }
    return oldest;
}

const struct http_job *http_readers_get(struct http_readers *readers, uint64_t job_id, int64_t rank,
                                        uint64_t age_us, bool *is_full)
{
    size_t at = find(readers, job_id, rank);
    uint64_t now_us = clock_boot_us();
    struct http_job *job;

    *is_full = false;
    if (at == HTTP_JOBS_MAX) {
        at = make_place(readers);
        if (at < HTTP_JOBS_MAX)
            readers->jobs[at] = calloc(1, sizeof **readers->jobs);
        if (at == HTTP_JOBS_MAX || readers->jobs[at] == NULL) {
            *is_full = true;
            return NULL;
        }
        http_job_init(readers->jobs[at], job_id, rank);
    }
    job = readers->jobs[at];
    job->used_us = now_us;
    if (job->code == 200 && job->pages.job.ended)
        age_us = AGE_ENDED_US;
    if (is_read_now(readers, job) || readers->is_wanted[at])
        return NULL;
    if (job->read_us > 0 && now_us < job->read_us + age_us)
        return job;
    readers->is_wanted[at] = true;
    give(readers);
    return NULL;
}

void http_readers_close(struct http_readers *readers)
{
    readers->is_closed = true;
    for (size_t i = 0; i < HTTP_READERS_MAX; i++)
        if (readers->items[i].is_open)
            client_close(&readers->items[i].client);
}

void http_readers_free(struct http_readers *readers)
{
    for (size_t i = 0; i < HTTP_JOBS_MAX; i++) {
        if (readers->jobs[i] != NULL)
            http_job_free(readers->jobs[i]);
        free(readers->jobs[i]);
        readers->jobs[i] = NULL;
    }
}
