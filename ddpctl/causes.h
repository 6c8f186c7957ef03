/* Why the generations of a job ended, from its events: the first event of a generation that is
 * neither a change of the job's state nor news about a node. Pure. */
#ifndef DDPCTL_CAUSES_H
#define DDPCTL_CAUSES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/msg.h"

struct cause {
    uint32_t generation; /* 0: unused entry */
    int64_t at_ms;
    char text[REASON_BYTES_MAX];
};

struct causes {
    struct cause *items; /* [capacity], zeroed: the last `capacity` generations */
    uint32_t capacity;
    char state_mark[JOB_NAME_BYTES_MAX + 40]; /* events about the job's state begin like this */
};

void causes_init(struct causes *causes, struct cause *items, uint32_t capacity,
                 const char *job_name, uint64_t job_id);
/* Whether the event is about a node that is silent or answers again. */
bool causes_is_news(const struct part_event *event);
/* Takes the events of the job, each once and in order. */
void causes_take(struct causes *causes, const struct part_event *event);
/* NULL: not known. */
const struct cause *causes_find(const struct causes *causes, uint32_t generation);

#endif
