/* Which bytes of a rank's log were written to stderr, and when each was: a file beside the log
 * (g1-rank0.log has g1-rank0.index), of records of 16 bytes in the order of the log. A record says the
 * stream and the time of the bytes from its offset on. A new one comes with a change of the stream,
 * and at most every LOG_INDEX_STEP_MS. The log itself has the exact bytes of both streams in the
 * order in which they came.
 *
 * The shim writes it (the thread of log_writer), launcherd reads it. Without an index all of a log counts as
 * stdout of an unknown time. */
#ifndef LAUNCHERD_PROCESS_LOG_INDEX_H
#define LAUNCHERD_PROCESS_LOG_INDEX_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/msg.h"

#define LOG_INDEX_STEP_MS 100

struct log_index_record {
    uint64_t offset_and_stream; /* the offset times 2, and 1 for stderr */
    int64_t at_ms;              /* wall clock */
};

struct log_index {
    int fd;         /* -1: no file yet */
    uint64_t count; /* records in the file */
    struct log_index_record last;
    bool has_failed; /* the disk has refused a record: said once */
    char path[PATH_MAX];
};

/* Of the log at that path; makes no file yet. */
void log_index_open(struct log_index *index, const char *log_path);
void log_index_close(struct log_index *index);
/* To be called before bytes are written at `offset`: so who reads them finds their stream. */
void log_index_note(struct log_index *index, uint64_t offset, bool is_error, int64_t at_ms);
/* The bytes from `begin` to `end` of the log are gone; those from `mark` to `begin` are a line of ours, so
 * stderr. Forgets the records about them. */
void log_index_cut(struct log_index *index, uint64_t mark, uint64_t begin, uint64_t end);

/* The runs of the `byte_count` bytes at `offset` of the log at that path: at most LOG_RUNS_MAX. Returns
 * how many bytes they cover; 0: not known, there is no index. */
uint32_t log_index_read(const char *log_path, uint64_t offset, uint32_t byte_count,
                        struct part_log_run runs[LOG_RUNS_MAX], uint32_t *run_count);

#endif
