#include "tests/lib/standin.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FAILED_CODE = 700, PAGE = 4096, BLOCKS_MAX = 1 << 20 };

static const size_t device_bytes = (size_t)4 << 30; /* of addresses */

struct call {
    void (*run)(void *args);
    void *args;
    struct call *next;
};

struct CUgraphExec_st {
    struct call *first, **last;
};

struct CUstream_st {
    bool records;
};

struct CUevent_st {
    bool is_recorded, is_timed;
    uint64_t at_us; /* of its record */
};

struct standin_faults standin_faults;
static struct standin_counts counts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *device;
static size_t device_used, block_bytes[BLOCKS_MAX]; /* by the page that a block begins at */
static uint32_t inside;
static _Thread_local struct CUgraphExec_st *recording;

struct standin_counts standin_counts(void)
{
    return counts;
}

/* -- the fence -- */

static void protect(int protection)
{
    int rc = mprotect(device, device_used, protection);

    assert(rc == 0);
    (void)rc;
}

static void enter(void)
{
    (void)pthread_mutex_lock(&lock);
    if (device == NULL) {
        device =
            mmap(NULL, device_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert(device != MAP_FAILED);
    }
    if (inside++ == 0)
        protect(PROT_READ | PROT_WRITE);
    (void)pthread_mutex_unlock(&lock);
}

static void leave(void)
{
    (void)pthread_mutex_lock(&lock);
    if (--inside == 0)
        protect(PROT_NONE);
    (void)pthread_mutex_unlock(&lock);
}

static bool is_device(const void *memory)
{
    const char *at = memory;

    return device != NULL && at >= device && at < device + device_bytes;
}

static void run_now(void (*run)(void *args), void *args)
{
    enter();
    run(args);
    counts.runs++;
    leave();
}

int standin_queue(void (*run)(void *args), const void *args, size_t bytes)
{
    struct call *call;
    void *copy;

    counts.launches++;
    if (standin_faults.fail_call > 0 && --standin_faults.fail_call == 0)
        return FAILED_CODE;
    if (recording != NULL && standin_faults.fail_recorded > 0 &&
        --standin_faults.fail_recorded == 0)
        return FAILED_CODE;
    copy = malloc(bytes);
    assert(copy != NULL);
    memcpy(copy, args, bytes);
    if (recording == NULL) {
        run_now(run, copy);
        free(copy);
        return 0;
    }
    call = malloc(sizeof *call);
    assert(call != NULL);
    *call = (struct call){run, copy, NULL};
    *recording->last = call;
    recording->last = &call->next;
    counts.recorded++;
    return 0;
}

/* -- the runtime -- */

static enum status device_use(uint32_t index, struct err *err)
{
    return index == 0 ? STATUS_OK : err_set(err, STATUS_LIBRARY, 101, "no device %u", index);
}

static enum status memory_info(size_t *free_bytes, size_t *total_bytes, struct err *err)
{
    (void)err;
    *free_bytes = device_bytes - device_used;
    *total_bytes = device_bytes;
    return STATUS_OK;
}

/* Blocks are not used again: a pointer that outlived its block is not hidden by the next one. */
static enum status memory_new(void **memory, size_t bytes, struct err *err)
{
    assert(recording == NULL);
    *memory = NULL;
    if (bytes == 0)
        return STATUS_OK;
    enter();
    leave();
    if (bytes > device_bytes - device_used)
        return err_set(err, STATUS_MEMORY, 2, "stand-in: out of device memory");
    *memory = device + device_used; /* behind the fence already */
    assert(device_used / PAGE < BLOCKS_MAX);
    block_bytes[device_used / PAGE] = (bytes + PAGE - 1) / PAGE * PAGE;
    device_used += block_bytes[device_used / PAGE];
    counts.device_blocks++;
    return STATUS_OK;
}

static void memory_free(void **memory)
{
    if (*memory == NULL)
        return;
    assert(is_device(*memory));
    (void)madvise(*memory, block_bytes[(size_t)((char *)*memory - device) / PAGE], MADV_DONTNEED);
    counts.device_blocks--;
    *memory = NULL;
}

static enum status pinned_new(void **memory, size_t bytes, struct err *err)
{
    *memory = malloc(bytes + 1);
    if (*memory == NULL)
        return err_set(err, STATUS_MEMORY, 2, "stand-in: out of memory");
    counts.pinned_blocks++;
    return STATUS_OK;
}

static void pinned_free(void **memory)
{
    if (*memory == NULL)
        return;
    free(*memory);
    counts.pinned_blocks--;
    *memory = NULL;
}

static enum status stream_new(struct CUstream_st **stream, struct err *err)
{
    *stream = calloc(1, sizeof **stream);
    if (*stream == NULL)
        return err_set(err, STATUS_MEMORY, 2, "stand-in: out of memory");
    counts.streams++;
    return STATUS_OK;
}

static void stream_free(struct CUstream_st **stream)
{
    if (*stream == NULL)
        return;
    free(*stream);
    counts.streams--;
    *stream = NULL;
}

static enum status stream_sync(struct CUstream_st *stream, struct err *err)
{
    (void)err;
    assert(stream != NULL && !stream->records); /* CUDA refuses this too */
    return STATUS_OK;
}

static enum status event_new(struct CUevent_st **event, struct err *err)
{
    *event = calloc(1, sizeof **event);
    if (*event == NULL)
        return err_set(err, STATUS_MEMORY, 2, "stand-in: out of memory");
    counts.events++;
    return STATUS_OK;
}

static void event_free(struct CUevent_st **event)
{
    if (*event == NULL)
        return;
    free(*event);
    counts.events--;
    *event = NULL;
}

static enum status event_record(struct CUevent_st *event, struct CUstream_st *stream,
                                struct err *err)
{
    (void)err;
    assert(stream != NULL);
    event->is_recorded = true;
    event->at_us = counts.runs;
    return STATUS_OK;
}

static enum status event_wait(struct CUevent_st *event, struct CUstream_st *stream, struct err *err)
{
    (void)err;
    assert(stream != NULL && event->is_recorded);
    return STATUS_OK;
}

static enum status event_sync(struct CUevent_st *event, struct err *err)
{
    (void)err;
    assert(event->is_recorded);
    return STATUS_OK;
}

/* Never there at once: as a device that is still at work. */
static enum status event_passed(struct CUevent_st *event, bool *passed, struct err *err)
{
    (void)err;
    assert(event->is_recorded);
    *passed = false;
    return STATUS_OK;
}

static enum status event_new_timed(struct CUevent_st **event, struct err *err)
{
    enum status status = event_new(event, err);

    if (status == STATUS_OK)
        (*event)->is_timed = true;
    return status;
}

static enum status event_elapsed(struct CUevent_st *begin, struct CUevent_st *end, double *us,
                                 struct err *err)
{
    (void)err;
    assert(begin->is_timed && end->is_timed && begin->is_recorded && end->is_recorded);
    *us = (double)(end->at_us - begin->at_us);
    return STATUS_OK;
}

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

static void run_copy(void *args)
{
    const struct copy *copy = args;

    if (copy->from != NULL)
        memmove(copy->to, copy->from, copy->bytes);
    else
        memset(copy->to, 0, copy->bytes);
}

static enum status queue(const struct copy *copy, const struct CUstream_st *stream, struct err *err)
{
    int code;

    assert(stream != NULL && (recording == NULL || stream->records));
    code = standin_queue(run_copy, copy, sizeof *copy);
    return code == 0 ? STATUS_OK : err_set(err, STATUS_LIBRARY, code, "stand-in: copy failed");
}

static enum status queue_copy_in(void *to, const void *host, size_t bytes,
                                 struct CUstream_st *stream, struct err *err)
{
    assert(is_device(to) && !is_device(host));
    return queue(&(struct copy){to, host, bytes}, stream, err);
}

static enum status queue_copy_out(void *host, const void *from, size_t bytes,
                                  struct CUstream_st *stream, struct err *err)
{
    assert(is_device(from) && !is_device(host));
    return queue(&(struct copy){host, from, bytes}, stream, err);
}

static enum status queue_copy(void *to, const void *from, size_t bytes, struct CUstream_st *stream,
                              struct err *err)
{
    assert(is_device(from) && is_device(to));
    return queue(&(struct copy){to, from, bytes}, stream, err);
}

static enum status queue_zero(void *memory, size_t bytes, struct CUstream_st *stream,
                              struct err *err)
{
    assert(is_device(memory));
    return queue(&(struct copy){memory, NULL, bytes}, stream, err);
}

static void record_free(struct CUgraphExec_st **graph)
{
    if (*graph == NULL)
        return;
    for (struct call *call = (*graph)->first, *next; call != NULL; call = next) {
        next = call->next;
        free(call->args);
        free(call);
    }
    free(*graph);
    counts.graphs--;
    *graph = NULL;
}

static enum status record_begin(struct CUstream_st *stream, struct err *err)
{
    (void)err;
    assert(recording == NULL);
    recording = calloc(1, sizeof *recording);
    assert(recording != NULL);
    recording->last = &recording->first;
    stream->records = true;
    counts.graphs++;
    return STATUS_OK;
}

static enum status record_end(struct CUstream_st *stream, struct CUgraphExec_st **graph,
                              struct err *err)
{
    assert(recording != NULL && stream->records);
    *graph = recording;
    recording = NULL;
    stream->records = false;
    if (!standin_faults.no_records)
        return STATUS_OK;
    record_free(graph);
    return err_set(err, STATUS_LIBRARY, 900, "stand-in: no record on purpose");
}

static enum status queue_graph(struct CUgraphExec_st *graph, struct CUstream_st *stream,
                               struct err *err)
{
    (void)err;
    assert(!stream->records);
    counts.repeated++;
    for (struct call *call = graph->first; call != NULL; call = call->next)
        run_now(call->run, call->args);
    return STATUS_OK;
}

static enum status launched(int code, const char *what, struct err *err)
{
    return code == 0 ? STATUS_OK
                     : err_set(err, STATUS_LIBRARY, code, "stand-in %s: failed on purpose", what);
}

static void device_reset(void)
{
}

const struct cuda_runtime standin_runtime = {
    .device_use = device_use,
    .memory_info = memory_info,
    .memory_new = memory_new,
    .memory_free = memory_free,
    .pinned_new = pinned_new,
    .pinned_free = pinned_free,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .stream_sync = stream_sync,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_sync = event_sync,
    .event_passed = event_passed,
    .event_new_timed = event_new_timed,
    .event_elapsed = event_elapsed,
    .queue_copy_in = queue_copy_in,
    .queue_copy_out = queue_copy_out,
    .queue_copy = queue_copy,
    .queue_zero = queue_zero,
    .record_begin = record_begin,
    .record_end = record_end,
    .queue_graph = queue_graph,
    .graph_free = record_free,
    .launched = launched,
    .device_reset = device_reset,
};
