/* The last events of a job, and why its generations ended, for its report. Pure. */
#ifndef DDPCTL_REPORT_EVENTS_H
#define DDPCTL_REPORT_EVENTS_H

#include "ddpctl/report_page.h"

#define REPORT_EVENTS_PAGE 200u /* most events in one request */

struct report_events {
    struct causes causes;
    struct cause cause_items[REPORT_CAUSES_MAX];
    struct part_event items[REPORT_EVENTS_MAX]; /* a ring: event i is at i modulo its size */
    char texts[REPORT_EVENTS_MAX][REASON_BYTES_MAX];
    uint64_t count, last_id;
};

/* `events` must be zeroed, and must not move afterwards. */
void report_events_init(struct report_events *events, const struct part_job *job);
/* Takes an answer with the events after last_id. True: there are more. */
bool report_events_take(struct report_events *events, const struct msg_events *answer);
/* Fills the page's events and causes: the ring as an array, oldest first. */
void report_events_show(const struct report_events *events,
                        struct part_event ordered[REPORT_EVENTS_MAX], struct report_page *page);

#endif
