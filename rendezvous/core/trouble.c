#include "rendezvous/core/trouble.h"

#include <stdio.h>

#include "rendezvous/core/state.h"

#define STEADY_US 30000000ull /* a connection that holds this long is a good one */

void trouble_hello(struct rdzv *rdzv, struct trouble *trouble, const char *node, bool is_same)
{
    const uint64_t now_us = rdzv->out.now_us;
    char text[REASON_BYTES_MAX];

    if (!is_same || now_us >= trouble->hello_at_us + STEADY_US)
        trouble->reconnects = 0;
    else if (trouble->reconnects++ == 0)
        trouble->since_us = trouble->hello_at_us;
    trouble->hello_at_us = now_us;
    if (trouble->reconnects < TROUBLE_RECONNECTS)
        return;
    text_format(
        text,
        "has connected again %u times within %llu s: its connection does not hold. Its log says "
        "how each one ended; after silence large messages may be lost on the way: look at "
        "the MTU of the network",
        trouble->reconnects, (unsigned long long)((now_us - trouble->since_us) / 1000000));
    if (trouble->reconnects == TROUBLE_RECONNECTS)
        action_log(&rdzv->out, 0, 0, "node %s %s", node, text);
    if (!trouble->is_overdue)
        (void)snprintf(trouble->text, sizeof trouble->text, "%s", text);
}

void trouble_beat(struct rdzv *rdzv, struct trouble *trouble, const char *node)
{
    if (trouble->reconnects == 0 || rdzv->out.now_us < trouble->hello_at_us + STEADY_US)
        return;
    if (trouble->reconnects >= TROUBLE_RECONNECTS)
        action_log(&rdzv->out, 0, 0,
                   "node %s: its connection holds again; it had connected again %u times", node,
                   trouble->reconnects);
    trouble->reconnects = 0;
    if (!trouble->is_overdue)
        trouble->text[0] = '\0';
}

bool trouble_closed(struct trouble *trouble)
{
    trouble->is_quiet = trouble->reconnects >= TROUBLE_RECONNECTS;
    return !trouble->is_quiet;
}

bool trouble_back(struct trouble *trouble)
{
    const bool was_quiet = trouble->is_quiet;

    trouble->is_quiet = false;
    return !was_quiet;
}

void trouble_overdue(struct trouble *trouble, const char *cause)
{
    trouble->is_overdue = true;
    (void)snprintf(trouble->text, sizeof trouble->text, "%s", cause);
}

void trouble_clear(struct trouble *trouble)
{
    trouble->reconnects = 0;
    trouble->is_overdue = false;
    trouble->text[0] = '\0';
}

void trouble_end(struct rdzv *rdzv, const struct job *job, uint32_t part,
                 const struct msg_shim_report *report)
{
    struct part_state *state = &job->gang.parts[part];
    const bool is_unkept = report->notice != NULL && report->notice[0] != '\0';
    char text[REASON_BYTES_MAX];

    if (state->node == NODE_NONE || is_unkept == state->is_unkept)
        return;
    state->is_unkept = is_unkept;
    if (is_unkept)
        trouble_overdue(&rdzv->nodes[state->node].trouble, report->notice);
    else
        trouble_clear(&rdzv->nodes[state->node].trouble);
    text_format(text, "node %s: %s", job->record.parts[part].node,
                is_unkept ? report->notice : "the end of its part is stored now");
    job_log(rdzv, job, text);
}
