/* What the backend needs from the CUDA runtime, as a table of functions: device and pinned memory,
 * streams, events, captures. A test can pass a table that works on host memory.
 *
 * Functions named `queue_` queue work on a stream and return before it has run. Host memory of such
 * a copy is pinned, and must not change until the stream has done the copy.
 *
 * Errors: STATUS_MEMORY, STATUS_LIBRARY with CUDA's code, name and words. An error of earlier work
 * on the device is reported by the next call, whichever it is. */
#ifndef WORKER_BACKEND_CUDA_MODULE_RUNTIME_H
#define WORKER_BACKEND_CUDA_MODULE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct CUstream_st;    /* cudaStream_t */
struct CUevent_st;     /* cudaEvent_t */
struct CUgraphExec_st; /* cudaGraphExec_t */

struct cuda_runtime {
    /* Makes device `index` current on the calling thread; every thread calls this first. */
    enum status (*device_use)(uint32_t index, struct err *err);
    /* Free bytes and all bytes of the current device. */
    enum status (*memory_info)(size_t *free_bytes, size_t *total_bytes, struct err *err);

    /* Zeroed, 256-byte aligned; NULL for 0 bytes. */
    enum status (*memory_new)(void **memory, size_t bytes, struct err *err);
    void (*memory_free)(void **memory);
    /* Pinned host memory: the device can copy from and to it directly. */
    enum status (*pinned_new)(void **memory, size_t bytes, struct err *err);
    void (*pinned_free)(void **memory);

    /* Streams do not wait for one another, nor for the default stream. */
    enum status (*stream_new)(struct CUstream_st **stream, struct err *err);
    void (*stream_free)(struct CUstream_st **stream);
    enum status (*stream_sync)(struct CUstream_st *stream, struct err *err);
    /* Events of event_new do not record times. */
    enum status (*event_new)(struct CUevent_st **event, struct err *err);
    void (*event_free)(struct CUevent_st **event);
    enum status (*event_record)(struct CUevent_st *event, struct CUstream_st *stream,
                                struct err *err);
    /* Later work of the stream waits for the event's last record. */
    enum status (*event_wait)(struct CUevent_st *event, struct CUstream_st *stream,
                              struct err *err);
    enum status (*event_sync)(struct CUevent_st *event, struct err *err);
    enum status (*event_passed)(struct CUevent_st *event, bool *passed, struct err *err);
    /* An event that records the device's time; freed as any other event. event_elapsed: the time
     * between the records of two such events; both must have completed. */
    enum status (*event_new_timed)(struct CUevent_st **event, struct err *err);
    enum status (*event_elapsed)(struct CUevent_st *begin, struct CUevent_st *end, double *us,
                                 struct err *err);

    enum status (*queue_copy_in)(void *device, const void *host, size_t bytes,
                                 struct CUstream_st *stream, struct err *err);
    enum status (*queue_copy_out)(void *host, const void *device, size_t bytes,
                                  struct CUstream_st *stream, struct err *err);
    enum status (*queue_copy)(void *to, const void *from, size_t bytes, struct CUstream_st *stream,
                              struct err *err);
    enum status (*queue_zero)(void *memory, size_t bytes, struct CUstream_st *stream,
                              struct err *err);

    /* Between begin and end, work that this thread queues on the stream, and on streams that wait
     * for an event of it, is captured into a graph instead of run. Captures do not nest. Until end,
     * no device memory may be allocated or freed, nothing may wait for these streams; the stream
     * must wait for every other stream that joined. Always call end; after an error `*graph` is
     * NULL and the stream works as before. */
    enum status (*capture_begin)(struct CUstream_st *stream, struct err *err);
    enum status (*capture_end)(struct CUstream_st *stream, struct CUgraphExec_st **graph,
                               struct err *err);
    enum status (*queue_graph)(struct CUgraphExec_st *graph, struct CUstream_st *stream,
                               struct err *err);
    void (*graph_free)(struct CUgraphExec_st **graph);

    /* Converts the code that a kernel's launch returned: STATUS_OK for 0, else STATUS_LIBRARY with
     * CUDA's words. */
    enum status (*launched)(int code, const char *what, struct err *err);
    /* Ends this process's use of the device and frees all its memory. */
    void (*device_reset)(void);
};

/* Lists all functions of an implementation: these names, after `prefix`. */
/* clang-format off */
#define CUDA_RUNTIME_TABLE(prefix)                                                                 \
    {.device_use = prefix##device_use, .memory_info = prefix##memory_info,                         \
     .memory_new = prefix##memory_new, .memory_free = prefix##memory_free,                         \
     .pinned_new = prefix##pinned_new, .pinned_free = prefix##pinned_free,                         \
     .stream_new = prefix##stream_new, .stream_free = prefix##stream_free,                         \
     .stream_sync = prefix##stream_sync, .event_new = prefix##event_new,                           \
     .event_free = prefix##event_free, .event_record = prefix##event_record,                       \
     .event_wait = prefix##event_wait, .event_sync = prefix##event_sync,                           \
     .event_passed = prefix##event_passed, .event_new_timed = prefix##event_new_timed,             \
     .event_elapsed = prefix##event_elapsed, .queue_copy_in = prefix##queue_copy_in,               \
     .queue_copy_out = prefix##queue_copy_out, .queue_copy = prefix##queue_copy,                   \
     .queue_zero = prefix##queue_zero, .capture_begin = prefix##capture_begin,                     \
     .capture_end = prefix##capture_end, .queue_graph = prefix##queue_graph,                       \
     .graph_free = prefix##graph_free, .launched = prefix##launched,                               \
     .device_reset = prefix##device_reset}
/* clang-format on */

/* The table of this module. */
extern const struct cuda_runtime cuda_runtime;

#endif
