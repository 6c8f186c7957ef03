/* The report of a job as one HTML page: needs no network, no script, no other file. Everything that comes
 * from the job is escaped; lists have a limit, and say what they leave out. Pure but for the heap. */
#ifndef DDPCTL_REPORT_PAGE_H
#define DDPCTL_REPORT_PAGE_H

#include <stdint.h>

#include "common/buf.h"
#include "common/msg.h"
#include "ddpctl/causes.h"
#include "ddpctl/report_data.h"

enum { REPORT_RANKS_MAX = 256, REPORT_EVENTS_MAX = 200, REPORT_CAUSES_MAX = 1024 };

struct report_page {
    const struct msg_job_info *info; /* with all ranks */
    const struct report_data *data;
    uint64_t lines, bad_lines;
    const struct causes *causes;
    const struct part_event *events; /* [event_count], the last ones, the oldest first */
    uint32_t event_count;
    uint64_t events_left_out;
    int64_t now_ms;
};

void report_page_write(const struct report_page *page, struct buf *out);

#endif
