/* Which ranks of a job have ended well while others still run, for a user who watches it: rank 0 is often done, and its
 * output with it, long before the job is. Pure. */
#ifndef DDPCTL_DONE_NOTE_H
#define DDPCTL_DONE_NOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/msg.h"

struct done_note {
    char text[256];      /* "rank 0 has ended, ranks 1-3 still run"; empty: not so */
    uint32_t generation; /* of which it is */
    uint64_t since_us;   /* since when some have ended, and others run */
    bool shown;          /* in this generation */
};

/* Takes the state of the job. Of a job whose ranks are on several pages, those of the first one alone are looked at. */
void done_note_take(struct done_note *note, const struct msg_job_info *info, uint64_t now_us);
/* Returns the text once in a generation, when some have been done for `after_us`; otherwise NULL. */
const char *done_note_due(struct done_note *note, uint64_t now_us, uint64_t after_us);

#endif
