#include "worker/metrics/trace.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/io/mono.h"
#include "common/utf8.h"
#include "worker/metrics/append.h"

#define BYTES_LIMIT (64u << 20)
#define FULL_BYTES 512u /* for the event that says so */

struct trace {
    struct append_file file; /* fd -1: none */
    uint32_t rank;
    int64_t shift_us;
    atomic_bool is_on;

    pthread_mutex_t lock; /* all below */
    struct buf text;      /* events that are not written yet, each behind ",\n" or "[\n" */
    size_t bytes_left;
    bool has_begun; /* the file has its bracket and an event */
    bool is_full;
};

static const char *const track_names[TRACE_TRACKS] = {
    [TRACE_TRAINING] = "training",
    [TRACE_REDUCTION] = "reduction of gradients",
    [TRACE_CHECKPOINT] = "checkpoint",
};

/* -- text -- */

static void put_text(struct buf *buf, const char *text)
{
    char plain[256];

    utf8_printable(text, strlen(text), plain, sizeof plain);
    buf_add_text(buf, "\"");
    for (const char *at = plain; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\')
            buf_add_text(buf, "\\");
        buf_add(buf, at, 1);
    }
    buf_add_text(buf, "\"");
}

/* Metadata of the rank's process and of its tracks. */
static void put_meta(struct buf *buf, uint32_t rank, int32_t track, const char *name,
                     const char *arg, const char *text)
{
    buf_printf(buf,
               "%s{\"ph\":\"M\",\"pid\":%" PRIu32 ",\"tid\":%d,\"name\":\"%s\",\"args\":{\"%s\":",
               buf->byte_count > 0 ? ",\n" : "", rank, (int)track, name, arg);
    put_text(buf, text);
    buf_add_text(buf, "}}");
}

static void put_order(struct buf *buf, uint32_t rank, int32_t track, const char *name,
                      uint32_t order)
{
    buf_printf(buf,
               ",\n{\"ph\":\"M\",\"pid\":%" PRIu32 ",\"tid\":%d,\"name\":\"%s\",\"args\":"
               "{\"sort_index\":%" PRIu32 "}}",
               rank, (int)track, name, order);
}

static void put_head(struct buf *buf, const struct trace_options *options)
{
    char name[128];

    (void)snprintf(name, sizeof name, "rank %" PRIu32 "%s%.80s", options->rank,
                   options->node[0] != '\0' ? " on " : "", options->node);
    put_meta(buf, options->rank, 0, "process_name", "name", name);
    put_meta(buf, options->rank, 0, "process_labels", "labels", options->label);
    put_order(buf, options->rank, 0, "process_sort_index", options->rank);
    for (uint32_t i = 0; i < TRACE_TRACKS; i++) {
        put_meta(buf, options->rank, (int32_t)i, "thread_name", "name", track_names[i]);
        put_order(buf, options->rank, (int32_t)i, "thread_sort_index", i);
    }
}

/* -- life -- */

enum status trace_open(struct trace **out, const struct trace_options *options, struct err *err)
{
    struct trace *trace = calloc(1, sizeof *trace);
    enum status status = STATUS_OK;

    *out = trace;
    if (trace == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a trace");
    trace->file.fd = -1;
    trace->rank = options->rank;
    trace->shift_us = options->shift_us;
    trace->bytes_left = options->bytes_limit > 0 ? options->bytes_limit : BYTES_LIMIT;
    (void)pthread_mutex_init(&trace->lock, NULL);
    put_head(&trace->text, options);
    if (options->path != NULL)
        status = append_open(&trace->file, options->path, APPEND_REPLACE, err);
    if (status == STATUS_OK && options->path != NULL)
        status = trace_write(trace, err);
    if (status == STATUS_IO && trace->file.fd >= 0 && err->code == ENOSPC)
        status = STATUS_OK; /* as later: a full disk costs spans */
    if (status != STATUS_OK)
        trace_close(out);
    return status;
}

void trace_close(struct trace **out)
{
    struct trace *trace = *out;
    struct err ignored;

    if (trace == NULL)
        return;
    if (trace->file.fd >= 0 && trace_write(trace, &ignored) == STATUS_OK && trace->has_begun)
        (void)append_write(&trace->file, "\n]\n", 3, &ignored);
    append_close(&trace->file);
    buf_free(&trace->text);
    (void)pthread_mutex_destroy(&trace->lock);
    free(trace);
    *out = NULL;
}

/* -- spans -- */

void trace_set(struct trace *trace, bool is_on)
{
    if (trace != NULL)
        atomic_store(&trace->is_on, is_on);
}

bool trace_is_on(struct trace *trace)
{
    return trace != NULL && atomic_load(&trace->is_on);
}

uint64_t trace_now(struct trace *trace)
{
    return trace_is_on(trace) ? mono_us() : 0;
}

static void put_span(const struct trace *trace, struct buf *buf, enum trace_track track,
                     const char *name, int64_t at_us, uint64_t us)
{
    buf_printf(buf,
               "%s{\"ph\":\"X\",\"pid\":%" PRIu32 ",\"tid\":%d,\"name\":\"%s\",\"ts\":%" PRId64
               ",\"dur\":%" PRIu64,
               buf->byte_count > 0 ? ",\n" : "", trace->rank, (int)track, name, at_us, us);
}

void trace_span(struct trace *trace, enum trace_track track, const char *name, uint64_t begun_us,
                const char *arg, uint64_t value)
{
    struct buf *buf;
    size_t before;

    if (begun_us == 0 || !trace_is_on(trace))
        return;
    (void)pthread_mutex_lock(&trace->lock);
    buf = &trace->text;
    before = buf->byte_count;
    if (!trace->is_full) {
        const uint64_t us = mono_us() - begun_us;
        const int64_t at_us = (int64_t)begun_us + trace->shift_us;

        trace->is_full = trace->bytes_left < FULL_BYTES;
        put_span(trace, buf, track,
                 trace->is_full ? "the trace is full: later spans are left out" : name, at_us, us);
        if (arg != NULL)
            buf_printf(buf, ",\"args\":{\"%s\":%" PRIu64 "}", arg, value);
        buf_add_text(buf, "}");
        trace->is_full = trace->is_full || buf->failed;
        trace->bytes_left -= trace->is_full ? 0 : buf->byte_count - before;
    }
    (void)pthread_mutex_unlock(&trace->lock);
}

/* -- files -- */

/* Gives up the text that is not written yet. */
static struct buf take_text(struct trace *trace)
{
    struct buf text;

    (void)pthread_mutex_lock(&trace->lock);
    text = trace->text;
    trace->text = (struct buf){0};
    (void)pthread_mutex_unlock(&trace->lock);
    return text;
}

static enum status write_text(struct trace *trace, const char *text, size_t byte_count,
                              struct err *err)
{
    struct buf piece = {0};
    enum status status;

    if (byte_count == 0)
        return STATUS_OK;
    if (trace->file.is_torn)
        return err_set(err, STATUS_IO, 0, "the file ends inside a span, nothing can follow");
    buf_add_text(&piece, trace->has_begun ? ",\n" : "[\n");
    buf_add(&piece, text, byte_count);
    status = piece.failed ? err_set(err, STATUS_MEMORY, 0, "no memory to write spans")
                          : append_write(&trace->file, piece.bytes, piece.byte_count, err);
    trace->has_begun = trace->has_begun || status == STATUS_OK;
    buf_free(&piece);
    return status;
}

enum status trace_write(struct trace *trace, struct err *err)
{
    struct buf text;
    enum status status;

    if (trace == NULL || trace->file.fd < 0)
        return STATUS_OK;
    text = take_text(trace);
    status = write_text(trace, text.bytes, text.byte_count, err);
    buf_free(&text);
    return status;
}

char *trace_take(struct trace *trace, size_t *byte_count)
{
    const struct buf text = take_text(trace);

    assert(trace->file.fd < 0);
    *byte_count = text.byte_count;
    return text.bytes;
}

enum status trace_add(struct trace *trace, const char *text, size_t byte_count, struct err *err)
{
    return write_text(trace, text, byte_count, err);
}
