/* Reads the jobs that somebody looks at (http_job.h) over a few connections to the server, one job
 * at a time on each; other jobs wait. Results are kept; the one unused for longest is replaced
 * first. */
#ifndef DDPCTL_HTTP_READERS_H
#define DDPCTL_HTTP_READERS_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "ddpctl/client.h"
#include "ddpctl/http_job.h"

enum { HTTP_READERS_MAX = 4, HTTP_JOBS_MAX = 32 };

struct http_readers;

struct http_reader {
    struct http_readers *readers;
    struct client client;
    bool is_open;         /* client_open was called */
    struct http_job *job; /* the job that it reads; NULL: none */
};

struct http_readers {
    uv_loop_t *loop;
    const struct server *server;
    void *owner;
    /* The job has been read, or could not be: see its `code`. */
    void (*on_read)(void *owner, const struct http_job *job);
    struct http_reader items[HTTP_READERS_MAX];
    struct http_job *jobs[HTTP_JOBS_MAX]; /* owned; NULL: free */
    bool is_wanted[HTTP_JOBS_MAX];        /* waits for a reader */
    bool is_closed;
};

/* Returns the job if it was read within the last `age_us`. Otherwise starts to read it and returns
 * NULL; on_read follows. `*is_full`: NULL because all places are in use. */
const struct http_job *http_readers_get(struct http_readers *readers, uint64_t job_id, int64_t rank,
                                        uint64_t age_us, bool *is_full);
void http_readers_close(struct http_readers *readers);
/* After the loop has ended. */
void http_readers_free(struct http_readers *readers);

#endif
