/* Why a worker failed. Before the first end of a worker that is a failure goes to the core, the error files
 * of all workers are read, by the thread of log_writer.h: a disk that hangs delays the end by
 * FAILURES_READ_MS and no more. The ends of other workers wait behind it, so their order stays, but for
 * one thing: who raised an exception first goes first. Part of shim_workers. */
#ifndef LAUNCHERD_SHIM_FAILURES_H
#define LAUNCHERD_SHIM_FAILURES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "launcherd/core/shim.h"
#include "launcherd/shim/exception.h"

#define FAILURES_READ_MS 500u

struct shim_workers;

/* What the thread found for one worker. */
struct failure_file {
    bool is_found;
    char problem[128]; /* of a file that cannot be used; else empty */
    struct exception exception;
    int64_t raised_us; /* Unix time: of the exception, else when the file was written */
};

struct failures {
    struct shim_workers *workers;
    uv_async_t async;
    uv_timer_t timer;
    enum { FAILURES_NONE, FAILURES_READING, FAILURES_KNOWN, FAILURES_UNKNOWN } state;
    uint32_t count;
    struct shim_event pending[SLOTS_PER_NODE_MAX]; /* EXITED, in the order of their ends */
    atomic_bool is_read;
    struct failure_file files[SLOTS_PER_NODE_MAX]; /* the thread's, until is_read */
};

void failures_open(struct failures *failures, struct shim_workers *workers);
/* After the thread has ended. */
void failures_close(struct failures *failures);

/* EXITED goes to the core, now or soon. */
void failures_exited(struct failures *failures, const struct shim_event *event);
/* Those that wait are posted, without more about them: the core wants all workers to end. */
void failures_flush(struct failures *failures);
/* The exception of a worker: message and end of the traceback; "" where nothing is known of one. */
void failures_error(const struct failures *failures, uint32_t local, char out[TAIL_BYTES_MAX]);

#endif
