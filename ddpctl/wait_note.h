/* Why a job still waits, in the queue or for a restart: for a user who waits for its logs. Pure. */
#ifndef DDPCTL_WAIT_NOTE_H
#define DDPCTL_WAIT_NOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg.h"

struct wait_note {
    char text[REASON_BYTES_MAX + 80]; /* "r50 (12) waits: ..."; empty: it does not wait */
    uint64_t since_us;                /* since when it waits for this reason */
    bool shown;
};

/* Takes the state of the job. */
void wait_note_take(struct wait_note *note, const struct part_job *job, uint64_t now_us);
/* Returns the text once, when it has been true for `after_us`; otherwise NULL. */
const char *wait_note_due(struct wait_note *note, uint64_t now_us, uint64_t after_us);

#endif
