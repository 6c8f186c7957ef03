/* Why a worker failed. When the first worker fails, the thread of log_writer.h reads the error
 * files of all workers before the core gets EXITED. A disk that hangs delays this by at most
 * FAILURES_READ_MS. EXITED of other workers waits too, and as long, if all that ended have lost a peer: the worker that
 * is the cause may end in a moment. The events keep their order, except that the worker that raised its exception first comes
 * first, and one that failed by itself before those that lost a peer. Part of shim_workers. */
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
    char problem[128]; /* why the file cannot be used; else empty */
    struct exception exception;
    int64_t raised_us; /* Unix time of the exception, or else when the file was written */
};

struct failures {
    struct shim_workers *workers;
    uv_async_t async;
    uv_timer_t timer;
    enum { FAILURES_NONE, FAILURES_READING, FAILURES_KNOWN, FAILURES_UNKNOWN } state;
    uint32_t count;
    struct shim_event pending[SLOTS_PER_NODE_MAX]; /* events EXITED, in the order of the ends */
    atomic_bool is_read;
    bool is_waiting; /* the files are read, and a worker that still runs may be the cause */
    struct failure_file files[SLOTS_PER_NODE_MAX]; /* only the thread uses them until is_read */
};

void failures_open(struct failures *failures, struct shim_workers *workers);
/* Call after log_writer_close. */
void failures_close(struct failures *failures);

/* Gives EXITED to the core, at once or when the error files are read. */
void failures_exited(struct failures *failures, const struct shim_event *event);
/* Posts the waiting events without the error files: the core wants all workers to end. */
void failures_flush(struct failures *failures);
/* The exception of a worker: the end of its traceback, with the message. "": none is known. */
void failures_error(const struct failures *failures, uint32_t local, char out[TAIL_BYTES_MAX]);

#endif
