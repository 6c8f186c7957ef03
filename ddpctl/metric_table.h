/* Formats metrics as a table, as CSV or as JSON, line by line. Texts may be hostile and are
 * escaped. Pure. */
#ifndef DDPCTL_METRIC_TABLE_H
#define DDPCTL_METRIC_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"
#include "ddpctl/metric_lines.h"

enum metric_form { METRIC_TABLE, METRIC_CSV, METRIC_JSON };

enum { METRIC_COLUMNS_MAX = 32, METRIC_NAME_BYTES = 64 };

struct metric_table {
    enum metric_form form;
    bool is_chosen; /* --field was given: lines without any of the fields are left out */
    char fields[METRIC_COLUMNS_MAX][METRIC_NAME_BYTES];
    uint32_t field_count;
    uint64_t job_id;
    bool has_head;
};

/* `format`: table, csv, json or NULL. `fields`: comma-separated names, or NULL.
 * STATUS_BAD_INPUT. */
enum status metric_table_init(struct metric_table *table, const char *format, const char *fields,
                              struct err *err);
/* Appends the line, and the heading before the first line. */
void metric_table_line(struct metric_table *table, const struct metric_line *line, struct buf *out);

#endif
