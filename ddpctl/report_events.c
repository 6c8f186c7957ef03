#include "ddpctl/report_events.h"

#include <stdio.h>

#include "ddpctl/page.h"

void report_events_init(struct report_events *events, const struct part_job *job)
{
    causes_init(&events->causes, events->cause_items, REPORT_CAUSES_MAX, job->name, job->job_id);
}

bool report_events_take(struct report_events *events, const struct msg_events *answer)
{
    const uint64_t before = events->last_id;

    for (uint32_t i = 0; i < answer->events.count; i++) {
        const struct part_event *event = &answer->events.items[i];
        size_t at = events->count % REPORT_EVENTS_MAX;

        if (event->id <= events->last_id)
            continue;
        causes_take(&events->causes, event);
        (void)snprintf(events->texts[at], REASON_BYTES_MAX, "%s", event->text);
        events->items[at] = *event;
        events->items[at].text = events->texts[at];
        events->count++;
        events->last_id = event->id;
    }
    return page_goes_on(answer->events.count == REPORT_EVENTS_PAGE, before, events->last_id);
}

void report_events_show(const struct report_events *events,
                        struct part_event ordered[REPORT_EVENTS_MAX], struct report_page *page)
{
    uint64_t count = events->count < REPORT_EVENTS_MAX ? events->count : REPORT_EVENTS_MAX;

    for (uint64_t i = 0; i < count; i++)
        ordered[i] = events->items[(events->count - count + i) % REPORT_EVENTS_MAX];
    page->events = ordered;
    page->event_count = (uint32_t)count;
    page->events_left_out = events->count - count;
    page->causes = &events->causes;
}
