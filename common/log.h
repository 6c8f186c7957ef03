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

/* Call once, at the start. `module` ("rendezvous") must stay valid. DDP_LOG_LEVEL (debug, info,
 * warning, error) and DDP_LOG_FORMAT (text, json) override level and form. Control characters in a
 * line are escaped. */
void log_open(const char *module, enum log_level level, bool as_json);
/* From now on each line, with its line feed, is passed to `write` instead of stderr. NULL: stderr
 * again. */
void log_use(void (*write)(const char *bytes, size_t byte_count));
/* From now on a line that stderr does not take at once (a pipe that nobody reads) is dropped. When
 * stderr takes lines again, one says how many were dropped. */
void log_never_wait(void);
void log_line(enum log_level level, struct log_about about, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
