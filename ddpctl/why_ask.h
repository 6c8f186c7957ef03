/* Questions about live ranks, all over one connection: an edge on a loop of its own. */
#ifndef DDPCTL_WHY_ASK_H
#define DDPCTL_WHY_ASK_H

#include "common/buf.h"
#include "ddpctl/ctl.h"

#define WHY_ASK_MAX 40u           /* the server keeps no more waiting for one connection */
#define WHY_ANSWER_MAX (1u << 20) /* bytes */

struct why_question {
    uint32_t rank;
    enum log_kind what;
    struct buf answer;              /* what the node said, as far as it came */
    bool is_done;                   /* all of it */
    char problem[REASON_BYTES_MAX]; /* not empty: why there is nothing */
};

/* Asks them all. What has no answer in time has a problem. `questions`: freed by why_ask_free. */
void why_ask(struct ctl *ctl, uint64_t job_id, uint32_t generation, struct why_question *questions,
             uint32_t count);
void why_ask_free(struct why_question *questions, uint32_t count);

#endif
