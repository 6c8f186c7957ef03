/* Log lines on stderr: time, level, module, node/job/generation/rank where set, one sentence. Text
 * or JSON lines. */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

/* What a line is about; zero (NULL, 0, -1 for rank) where it is about none. */
struct log_about {
    const char *node;
    uint64_t job_id;
    uint32_t generation;
    int32_t rank; /* -1: none */
};
#define LOG_ABOUT_NONE ((struct log_about){.rank = -1})

/* Once, at the start. `module` ("rendezvous") is borrowed for ever. Level from DDP_LOG_LEVEL
 * (debug, info, warning, error), form from DDP_LOG_FORMAT (text, json) where set. Control
 * characters in a line are escaped. */
void log_open(const char *module, enum log_level level, bool as_json);
void log_line(enum log_level level, struct log_about about, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
