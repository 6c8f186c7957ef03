/* Which bytes of a rank's log were written to stderr, and when: a file beside the log (g1-rank0.log has
 * g1-rank0.index) of 16-byte records in the order of the log. A record has the stream and the time of the bytes
 * from its offset on. A new record comes with each change of the stream, and otherwise at most every
 * LOG_INDEX_STEP_MS. The log itself has exactly the bytes of both streams, in the order in which they came.
 *
 * The shim writes it (the thread of log_writer), launcherd reads it. Without an index the whole log counts as
 * stdout of unknown time. */
#ifndef LAUNCHERD_PROCESS_LOG_INDEX_H
#define LAUNCHERD_PROCESS_LOG_INDEX_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/msg.h"

#define LOG_INDEX_STEP_MS 100

/* A log of which everything was lost, because the disk refused it until the end, is one hole, which takes no
 * space: of this many bytes, and as many as were lost. Who reads it gets a line that says so. */
#define LOG_LOST_BYTES 4096u

struct log_index_record {
    uint64_t offset_and_stream; /* the offset times 2, and 1 for stderr */
    int64_t at_ms;              /* wall clock */
};

struct log_index {
    int fd;         /* -1: no file yet */
    uint64_t count; /* records in the file */
    struct log_index_record last;
    bool has_failed; /* the disk refused a record; logged once */
    char path[PATH_MAX];
};

/* For the log at that path; creates no file yet. */
void log_index_open(struct log_index *index, const char *log_path);
void log_index_close(struct log_index *index);
/* Call before bytes are written at `offset`, so that their readers find the stream. */
void log_index_note(struct log_index *index, uint64_t offset, bool is_error, int64_t at_ms);
/* The bytes from `begin` to `end` were cut out of the log. Those from `mark` to `begin` are a line
 * of ours, which counts as stderr. Removes the records about them. */
void log_index_cut(struct log_index *index, uint64_t mark, uint64_t begin, uint64_t end);

/* The runs of `byte_count` bytes at `offset` of the log: at most LOG_RUNS_MAX. Returns how many
 * bytes they cover; 0: there is no index. */
uint32_t log_index_read(const char *log_path, uint64_t offset, uint32_t byte_count,
                        struct part_log_run runs[LOG_RUNS_MAX], uint32_t *run_count);

#endif
