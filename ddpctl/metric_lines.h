/* Reads the lines of a job's metrics: JSON objects (docs/watching.md). Any program may have written
 * them, so everything is checked and limited. Pure. */
#ifndef DDPCTL_METRIC_LINES_H
#define DDPCTL_METRIC_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"

struct cJSON; /* cjson/cJSON.h */

#define METRIC_LINE_BYTES_MAX (16u * 1024u)
#define METRIC_FIELDS_MAX 256u /* most fields in a line */

/* A line with one flat JSON object. */
struct metric_line {
    uint32_t generation, rank; /* by which it was written */
    const struct cJSON *object;
};

struct metric_lines {
    void (*take)(void *owner, const struct metric_line *line); /* each good line, in order */
    void *owner;
    uint64_t good, bad; /* bad lines are skipped */
    struct buf line;    /* the beginning of the next line */
    bool is_too_long;   /* skip the rest of it */
};

/* Takes the next bytes of a file, in order. With `is_final` the text after the last line feed is a
 * line, too, because its writer may have been killed. */
void metric_lines_take(struct metric_lines *lines, uint32_t generation, uint32_t rank,
                       const void *bytes, size_t byte_count, bool is_final);
void metric_lines_close(struct metric_lines *lines);

/* The number of that name; NaN: there is none. images_per_s and samples_per_s are synonyms. */
double metric_number(const struct cJSON *object, const char *name);
/* The text of that name, unescaped; NULL: there is none. */
const char *metric_text(const struct cJSON *object, const char *name);
/* Appends the field for display: a number with all its digits, or a text. False: there is none, and
 * `out` is unchanged. */
bool metric_shown(const struct cJSON *object, const char *name, struct buf *out);

#endif
