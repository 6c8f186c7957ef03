/* What the backend needs of the CUDA runtime, as a table of functions: device and pinned memory,
 * streams, events, recorded steps.
 *
 * A test stands in a table over host memory. Everything named `queue_` is queued on a stream and
 * returns before it ran; host memory of such a copy is pinned and stays as it is until the stream
 * has passed. Errors: STATUS_MEMORY, STATUS_LIBRARY with CUDA's code, name and words; a failure of
 * earlier work on the device shows in whatever call comes next. */
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
    /* Host memory that the device copies from and to by itself. */
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
    /* What comes on the stream waits for the event's last record. */
    enum status (*event_wait)(struct CUevent_st *event, struct CUstream_st *stream,
                              struct err *err);
    enum status (*event_sync)(struct CUevent_st *event, struct err *err);
    enum status (*event_passed)(struct CUevent_st *event, bool *passed, struct err *err);
    /* An event that carries the time of its record, on the device; freed as any. elapsed: the time
     * between two of them, both of which have passed. */
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

    /* Between begin and end work of this thread on the stream, and on others that wait for it, is
     * written down instead of run; memory must not be made meanwhile. end is always called; after
     * a failure `*graph` is NULL and the stream works as before. */
    enum status (*record_begin)(struct CUstream_st *stream, struct err *err);
    enum status (*record_end)(struct CUstream_st *stream, struct CUgraphExec_st **graph,
                              struct err *err);
    enum status (*queue_graph)(struct CUgraphExec_st *graph, struct CUstream_st *stream,
                               struct err *err);
    void (*graph_free)(struct CUgraphExec_st **graph);

    /* Words for what a kernel's launch returned: STATUS_OK for 0, else STATUS_LIBRARY. */
    enum status (*launched)(int code, const char *what, struct err *err);
    /* Ends this process's use of the device and gives all its memory back. */
    void (*device_reset)(void);
};

/* The table of this module. */
extern const struct cuda_runtime cuda_runtime;

#endif
