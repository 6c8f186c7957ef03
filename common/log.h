/* Log lines on stderr, as text or JSON: time, level, module; node, job, generation and rank where
 * set; one sentence. */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

/* The subject of a line. Not set: NULL, 0, and -1 for the rank. */
struct log_about {
    const char *node;
    uint64_t job_id;
    uint32_t generation;
    int32_t rank; /* -1: none */
};
#define LOG_ABOUT_NONE ((struct log_about){.rank = -1})

/* To be called once, at the start. `module` ("rendezvous") is borrowed for ever. DDP_LOG_LEVEL
 * (debug, info, warning, error) and DDP_LOG_FORMAT (text, json) override level and form. Control
 * characters in a line are escaped. */
void log_open(const char *module, enum log_level level, bool as_json);
/* From now on each line, with its line feed, goes to `write` and not to stderr. NULL: to stderr. */
void log_use(void (*write)(const char *bytes, size_t byte_count));
/* From now on a line that stderr (a pipe that nobody reads) does not take at once is dropped. When it
 * takes lines again, one says how many were. */
void log_never_wait(void);
void log_line(enum log_level level, struct log_about about, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
