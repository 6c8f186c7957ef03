#include "ddpctl/causes.h"

#include <stdio.h>
#include <string.h>

void causes_init(struct causes *causes, struct cause *items, uint32_t capacity,
                 const char *job_name, uint64_t job_id)
{
    *causes = (struct causes){.items = items, .capacity = capacity};
    (void)snprintf(causes->state_mark, sizeof causes->state_mark, "%s (%llu) is ", job_name,
                   (unsigned long long)job_id);
}

bool causes_is_news(const struct part_event *event)
{
    return strncmp(event->text, EVENT_ABOUT_NODE, sizeof EVENT_ABOUT_NODE - 1) == 0;
}

void causes_take(struct causes *causes, const struct part_event *event)
{
    struct cause *cause = &causes->items[event->generation % causes->capacity];

    if (event->generation == 0 || event->generation <= cause->generation ||
        strstr(event->text, causes->state_mark) || causes_is_news(event))
        return;
    cause->generation = event->generation;
    cause->at_ms = event->at_ms;
    (void)snprintf(cause->text, sizeof cause->text, "%s", event->text);
}

const struct cause *causes_find(const struct causes *causes, uint32_t generation)
{
    const struct cause *cause = &causes->items[generation % causes->capacity];

    return generation > 0 && cause->generation == generation ? cause : NULL;
}
