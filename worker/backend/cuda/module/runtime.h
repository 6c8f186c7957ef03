/* What the backend needs of the CUDA runtime, as a table of functions: device and pinned memory,
 * streams, events, captures. A test can pass a table over host memory.
 *
 * Everything named `queue_` is queued on a stream and returns before it ran. Host memory of such a
 * copy is pinned, and must not change until the stream has passed the copy.
 *
 * Errors: STATUS_MEMORY, STATUS_LIBRARY with CUDA's code, name and words. A failure of earlier work
 * on the device is reported by whatever call comes next. */
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
    /* Make device `index` current on the calling thread; every thread does so first. */
    enum status (*device_use)(uint32_t index, struct err *err);
    /* Free and all bytes of the current device. */
    enum status (*memory_info)(size_t *free_bytes, size_t *total_bytes, struct err *err);

    /* Zeroed, 256-byte aligned; NULL for 0 bytes. */
    enum status (*memory_new)(void **memory, size_t bytes, struct err *err);
    void (*memory_free)(void **memory);
    /* Pinned host memory: the device copies from and to it by itself. */
    enum status (*pinned_new)(void **memory, size_t bytes, struct err *err);
    void (*pinned_free)(void **memory);

    /* Streams do not wait for one another, nor for the default stream. */
    enum status (*stream_new)(struct CUstream_st **stream, struct err *err);
    void (*stream_free)(struct CUstream_st **stream);
    enum status (*stream_sync)(struct CUstream_st *stream, struct err *err);
    /* Events of event_new carry no times. */
    enum status (*event_new)(struct CUevent_st **event, struct err *err);
    void (*event_free)(struct CUevent_st **event);
    enum status (*event_record)(struct CUevent_st *event, struct CUstream_st *stream,
                                struct err *err);
    /* Later work of the stream waits for the event's last record. */
    enum status (*event_wait)(struct CUevent_st *event, struct CUstream_st *stream,
                              struct err *err);
    enum status (*event_sync)(struct CUevent_st *event, struct err *err);
    enum status (*event_passed)(struct CUevent_st *event, bool *passed, struct err *err);
    /* An event whose record takes the device's time; freed as any other. event_elapsed: the time
     * between the records of two of them, both of which have passed. */
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

    /* Between begin and end, work of this thread on the stream, and on streams that wait for an
     * event of it, is captured into a graph instead of run. Captures do not nest. Until the end
     *   no device memory may be made or freed, nothing may wait for these streams;
     *   the stream must wait for every other one that joined.
     * end is always called; after a failure `*graph` is NULL and the stream works as before. */
    enum status (*capture_begin)(struct CUstream_st *stream, struct err *err);
    enum status (*capture_end)(struct CUstream_st *stream, struct CUgraphExec_st **graph,
                               struct err *err);
    enum status (*queue_graph)(struct CUgraphExec_st *graph, struct CUstream_st *stream,
                               struct err *err);
    void (*graph_free)(struct CUgraphExec_st **graph);

    /* For the code that a kernel's launch returned: STATUS_OK for 0, else STATUS_LIBRARY with
     * CUDA's words. */
    enum status (*launched)(int code, const char *what, struct err *err);
    /* Ends this process's use of the device and gives all its memory back. */
    void (*device_reset)(void);
};

/* All functions, as an implementation has them: under these names, after `prefix`. */
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
