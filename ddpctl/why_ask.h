/* Questions about live ranks, all over one connection: an edge on a loop of its own. */
#ifndef DDPCTL_WHY_ASK_H
#define DDPCTL_WHY_ASK_H

#include "common/buf.h"
#include "ddpctl/ctl.h"

#define WHY_ASK_MAX 40u           /* the server keeps no more waiting requests of one connection */
#define WHY_ANSWER_MAX (1u << 20) /* bytes */

struct why_question {
    uint32_t rank;
    enum log_kind what;
    struct buf answer;              /* the node's answer, as far as it has arrived */
    bool is_done;                   /* the answer is complete */
    char problem[REASON_BYTES_MAX]; /* not empty: why there is no answer */
};

/* Asks all questions. One without an answer in time gets a problem. why_ask_free frees them. */
void why_ask(struct ctl *ctl, uint64_t job_id, uint32_t generation, struct why_question *questions,
             uint32_t count);
void why_ask_free(struct why_question *questions, uint32_t count);

#endif
