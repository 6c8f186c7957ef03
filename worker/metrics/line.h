/* metrics.jsonl: one JSON object a line. docs/training.md has its fields, which other programs rely
 * on: fields are added, never renamed. */
#ifndef WORKER_METRICS_LINE_H
#define WORKER_METRICS_LINE_H

#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"
#include "worker/metrics/append.h"

enum line_kind {
    LINE_STEP,       /* one step: its loss; rates since the line before */
    LINE_VALIDATION, /* over all ranks and images */
    LINE_EPOCH,      /* means over the epoch's steps on rank 0 */
    LINE_CHECKPOINT, /* `step` is committed */
    LINE_RESUME,     /* training begins after `step`: lines of later steps no longer count */
    LINE_RESTART     /* a new generation of the job */
};

/* A value that is not finite is written as null. */
struct metrics_line {
    enum line_kind kind;
    uint64_t time_us;        /* since 1970, UTC */
    uint32_t epoch, step;    /* counted from 1; step: of the whole training */
    double loss, acc1, acc5; /* STEP, VALIDATION, EPOCH; accuracies in percent */
    double images_per_s;     /* STEP, EPOCH: over all ranks */
    double lr, step_ms, data_ms, comm_ms, exposed_ms, loss_scale; /* STEP */
    uint32_t skipped;                                             /* STEP: of all steps so far */
    uint32_t images;                                              /* VALIDATION: over all ranks */
    double seconds;                                               /* VALIDATION, EPOCH */
    size_t unreadable;          /* EPOCH: samples of rank 0 that others have replaced */
    uint32_t generation, world; /* RESUME, RESTART */
};

/* Adds the line with its line feed. */
void metrics_line_put(struct buf *buf, const struct metrics_line *line);

struct line_file {
    struct append_file file;
    bool begins_line; /* false: what is in the file does not end with a line feed */
};

/* Appends to `path`. `*has_lines`: something is in it already. Errors: STATUS_IO. */
enum status line_file_open(struct line_file *file, const char *path, bool *has_lines,
                           struct err *err);
/* With one write, so that lines of several programs do not mix. Errors: STATUS_IO, STATUS_MEMORY. */
enum status line_file_write(struct line_file *file, const struct metrics_line *line,
                            struct err *err);

#endif
