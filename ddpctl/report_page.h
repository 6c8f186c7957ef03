/* The report of a job as one HTML page that needs no network, no script and no other file.
 * Everything from the job is escaped. Lists are limited and say how much they leave out. Pure,
 * apart from the heap. */
#ifndef DDPCTL_REPORT_PAGE_H
#define DDPCTL_REPORT_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/msg.h"
#include "ddpctl/causes.h"
#include "ddpctl/report_data.h"

enum { REPORT_RANKS_MAX = 256, REPORT_EVENTS_MAX = 200, REPORT_CAUSES_MAX = 1024 };

/* Additional content if the page is served and reloads itself (http_server.h). */
struct report_live {
    uint32_t refresh_s; /* 0: it does not reload */
    uint32_t rank, generation;
    const char *log; /* the last lines of that rank; may be empty */
    size_t log_bytes;
    const char *log_problem; /* not empty: why there are none */
    bool is_partial;         /* metrics are still being read */
};

struct report_page {
    const struct msg_job_info *info; /* with all ranks */
    const struct report_data *data;
    uint64_t lines, bad_lines;
    const struct causes *causes;
    const struct part_event *events; /* [event_count], the newest ones, the oldest first */
    uint32_t event_count;
    uint64_t events_left_out;
    int64_t now_ms;
    const struct report_live *live; /* NULL: the page is a file */
};

void report_page_write(const struct report_page *page, struct buf *out);

#endif
