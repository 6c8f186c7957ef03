/* What one step of the core produces: its actions, their texts, and the time of the next tick. The
 * table of actions has a fixed size, but one step can cause more work than fits: thousands of jobs
 * and nodes can fail in one tick. So code that handles many jobs or nodes calls actions_have_room()
 * before each of them. Without room it calls actions_continue() and stops. The remaining work stays
 * visible in the tables, and the next step continues with it. The actions for one event
 * (EVENT_ACTIONS_MAX) always fit. */
#ifndef RENDEZVOUS_CORE_ACTIONS_H
#define RENDEZVOUS_CORE_ACTIONS_H

#include "rendezvous/core/rdzv.h"

/* The most actions that handling one event adds, before work for other jobs begins. The largest
 * event is a beat:
 *   for each of 64 slots          a log line and a slot_resume
 *   for each of 128 listed shims  a stop
 *   for each of 64 parts          a log line that the node answers again, and JOB_ACTIONS_MAX if the
 *                                 node does not list the part
 *   for each of 64 spares         a log line, the publishing of its job, and an order
 *   for each of 64 warm jobs      an order
 *   what the node has seen        PERSIST_GAP and a log line
 * A hello adds PERSIST_LEASE and a log line, and has no beat's log lines. */
#define EVENT_ACTIONS_MAX                                                                          \
    (SLOTS_PER_NODE_MAX * (6 + JOB_ACTIONS_MAX + PUBLISH_ACTIONS) + SHIMS_PER_NODE_MAX + 11u)
/* The most actions that one transition of one job adds: cause, its class, state, "not restarted",
 * next state, what may still run of it, PERSIST_RANKS, PERSIST_HOLD, and the actions that publish the job. */
#define JOB_ACTIONS_MAX (8u + PUBLISH_ACTIONS)
#define PUBLISH_ACTIONS 4u /* PERSIST, PERSIST_FAILURE, JOB_CHANGED, JOB_ENDED */
/* A lost node: a log line and CLOSE_NODE. A suspect node: for each job on it a log line and the
 * actions that publish the job. */
#define NODE_ACTIONS_MAX (SLOTS_PER_NODE_MAX * (1 + PUBLISH_ACTIONS))

_Static_assert(EVENT_ACTIONS_MAX + NODE_ACTIONS_MAX + 2 * JOB_ACTIONS_MAX <= RDZV_ACTIONS_MAX,
               "a step handles its event, and at least one node and one job more");

struct output {
    uint64_t now_us; /* of the current event */
    int64_t wall_ms;
    struct rdzv_actions *actions;                   /* of the current step; NULL between steps */
    uint32_t reserved;                              /* room kept for publishing jobs */
    char texts[RDZV_ACTIONS_MAX][REASON_BYTES_MAX]; /* texts[i] belongs to actions->items[i] */
};

void actions_begin(struct output *out, struct rdzv_actions *actions, uint64_t now_us,
                   int64_t wall_ms);
/* Append a zeroed action. There must be room. */
struct rdzv_action *action_add(struct output *out, enum rdzv_action_type type);
/* Format the text of an action of the current step, as text_format does. */
void action_text(struct output *out, struct rdzv_action *action, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Append a LOG_EVENT. job_id 0: the line is about no job. */
void action_log(struct output *out, uint64_t job_id, uint32_t generation, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void action_reply_error(struct output *out, uint64_t client, enum status status, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));

/* Whether `count` more actions fit, beside the reserved ones. */
bool actions_have_room(const struct output *out, uint32_t count);
void actions_reserve(struct output *out, uint32_t count);
void actions_release(struct output *out, uint32_t count);

/* Ask for a TICK at that time at the latest. */
void actions_wake_at(struct output *out, uint64_t at_us);
/* Work is left that did not fit: ask for the next step at once. */
void actions_continue(struct output *out);

/* Format into a buffer of REASON_BYTES_MAX and make the text printable (utf8_printable), so that a
 * message can always carry it. */
void text_format(char out[REASON_BYTES_MAX], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
