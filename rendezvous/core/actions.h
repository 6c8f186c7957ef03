/* What one step of the core produces: its actions, their texts, and the time of the next tick.
 *
 * The table of actions is bounded, and the work of one step is not (thousands of jobs and nodes
 * can fail in one tick). So code that handles many jobs or nodes asks actions_have_room() before each of
 * them. Without room it calls actions_continue() and stops; the rest is still visible in the tables,
 * and the next step goes on with it. What one event needs (EVENT_ACTIONS_MAX) always fits. */
#ifndef RENDEZVOUS_CORE_ACTIONS_H
#define RENDEZVOUS_CORE_ACTIONS_H

#include "rendezvous/core/rdzv.h"

/* The most actions that the handling of one event adds, before work for other jobs begins. The
 * largest is a beat: for each of 64 slots a log line and a slot_resume, for each of 128 listed shims
 * a stop, for each of 64 parts a line that the node answers again, and if it does not list them
 * JOB_ACTIONS_MAX; for each of 64 spares a log line, what publishes it and an order, for each of 64
 * jobs that are warm there an order. */
#define EVENT_ACTIONS_MAX                                                                          \
    (SLOTS_PER_NODE_MAX * (6 + JOB_ACTIONS_MAX + PUBLISH_ACTIONS) + SHIMS_PER_NODE_MAX + 9u)
/* The most actions that one transition of one job adds: cause, its class, state, "not restarted", next state,
 * PERSIST_RANKS, and those of publishing it. */
#define JOB_ACTIONS_MAX (6u + PUBLISH_ACTIONS)
#define PUBLISH_ACTIONS 4u /* PERSIST, PERSIST_FAILURE, JOB_CHANGED, JOB_ENDED */
/* A lost node: a log line, CLOSE_NODE. A suspect one: a line of each job on it, and to publish those. */
#define NODE_ACTIONS_MAX (SLOTS_PER_NODE_MAX * (1 + PUBLISH_ACTIONS))

_Static_assert(EVENT_ACTIONS_MAX + NODE_ACTIONS_MAX + 2 * JOB_ACTIONS_MAX <= RDZV_ACTIONS_MAX,
               "a step handles its event, and at least one node and one job more");

struct output {
    uint64_t now_us; /* of the event */
    int64_t wall_ms;
    struct rdzv_actions *actions;                   /* of the step at hand; NULL between steps */
    uint32_t reserved;                              /* places that publishing will need */
    char texts[RDZV_ACTIONS_MAX][REASON_BYTES_MAX]; /* texts[i] belongs to actions->items[i] */
};

void actions_begin(struct output *out, struct rdzv_actions *actions, uint64_t now_us,
                   int64_t wall_ms);
/* A zeroed action at the end of the list. There must be room. */
struct rdzv_action *action_add(struct output *out, enum rdzv_action_type type);
/* Format the text of an action of this step, as text_format does. */
void action_text(struct output *out, struct rdzv_action *action, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* LOG_EVENT. job_id 0: about no job. */
void action_log(struct output *out, uint64_t job_id, uint32_t generation, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void action_reply_error(struct output *out, uint64_t client, enum status status, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));

/* Room for `count` more, beside what is reserved. */
bool actions_have_room(const struct output *out, uint32_t count);
void actions_reserve(struct output *out, uint32_t count);
void actions_release(struct output *out, uint32_t count);

/* A TICK is wanted at that time at the latest. */
void actions_wake_at(struct output *out, uint64_t at_us);
/* Work is left that has no room: the next step goes on at once. */
void actions_continue(struct output *out);

/* Format into a buffer of REASON_BYTES_MAX, made printable (utf8_printable), so that a message can
 * always carry it. */
void text_format(char out[REASON_BYTES_MAX], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
