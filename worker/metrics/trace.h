/* Spans of a run as a Chrome trace, which Perfetto and chrome://tracing open: a JSON array of events
 * ("Trace Event Format", complete events), a process for each rank, a track for each line of work.
 *
 * A rank that has a file writes its spans there step by step; the format allows the closing bracket
 * to be missing, so the file of a killed run still opens. A rank without one keeps its text for
 * trace_take, and another rank adds it by trace_add. What a trace takes is bounded; when that is
 * full it says so and leaves out the rest.
 *
 * Calls may come on several threads. A `trace` that is NULL does nothing. */
#ifndef WORKER_METRICS_TRACE_H
#define WORKER_METRICS_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/* Also the order in which they are shown. */
enum trace_track {
    TRACE_TRAINING, /* what the training thread does; spans nest */
    TRACE_REDUCTION,
    TRACE_CHECKPOINT,
    TRACE_TRACKS
};

struct trace;

struct trace_options {
    const char *path; /* replaced; NULL: the text is kept in memory */
    uint32_t rank;
    const char *node;   /* "": unknown */
    const char *label;  /* shown beside the rank */
    int64_t shift_us;   /* added to every time: to the clock that all ranks share */
    size_t bytes_limit; /* 0: the usual */
};

/* Errors: STATUS_IO (without the path), STATUS_MEMORY. */
enum status trace_open(struct trace **trace, const struct trace_options *options, struct err *err);
/* Ends the array and closes the file. `*trace` may be NULL. */
void trace_close(struct trace **trace);

/* Whether spans are taken; at first they are not. */
void trace_set(struct trace *trace, bool is_on);
bool trace_is_on(struct trace *trace);
/* What trace_span takes as a span's begin: mono_us(), or 0 while no spans are taken. */
uint64_t trace_now(struct trace *trace);
/* From `begun_us` until now. `begun_us` 0: none.
 *   name: plain text without quotes
 *   arg: the name of `value`, shown with the span; NULL: none */
void trace_span(struct trace *trace, enum trace_track track, const char *name, uint64_t begun_us,
                const char *arg, uint64_t value);

/* Writes what has come since the last call. Errors: STATUS_IO: these spans are lost. */
enum status trace_write(struct trace *trace, struct err *err);
/* The text of a rank without a file; it is the caller's, to be freed. */
char *trace_take(struct trace *trace, size_t *byte_count);
/* Adds the text that trace_take gave on another rank. Errors: as trace_write. */
enum status trace_add(struct trace *trace, const char *text, size_t byte_count, struct err *err);

#endif
