/* The steps that a part of a generation goes through from its start order to its end, and how long each may take.
 *
 *   step       begins with                     ends with                        limit
 *   take       the start order                 the node lists the shim          30 s
 *   prepare    the node's list                 the report "ready"               45 s; with a staged folder
 *                                                                               10.5 min, if its shim answers
 *   wait       "ready"                         the go: other parts get ready    none: theirs have one
 *   run        the go                          the report "running"             75 s
 *   world      all ranks of the job joined     the report "has the world"       20 s
 *   work       "running"                       the end, or a stop               none here: hang.h, --time
 *   store      every rank has exited 0, the    the report of the end            45 s
 *              shim keeps the store
 *   stop       the decision to stop            the report of the end            the grace and 90 s; 45 s if no
 *                                                                               rank can have begun
 *
 * A beat does not move a step on. The node has its own, shorter limits for what it can see itself
 * (launcherd/core/launcher.h), so that it reports the better reason; these are for a node that is up and does
 * not carry out its orders, or does not get them, also because its connection ends again and again. Deadlines are enforced in deadline.h.
 *
 * Time in which the server did not run, or could not hear the node for longer than options.suspect_us, does not
 * count: then the node is lost (roster.h), or goes on. */
#ifndef RENDEZVOUS_CORE_STEPS_H
#define RENDEZVOUS_CORE_STEPS_H

#include "rendezvous/core/roster.h"

#define STEP_TAKE_US 30000000ull
#define STEP_PREPARE_US 45000000ull
#define STEP_STAGED_US 630000000ull
#define STEP_SLOW_US 20000000ull
#define STEP_RUN_US 75000000ull
#define STEP_WORLD_US                                                                              \
    20000000ull /* below the least limit of a hang, which would blame the program */
#define STEP_STORE_US 45000000ull
#define STEP_STOP_US 90000000ull
#define STEP_STOP_IDLE_US 45000000ull

/* Call after anything about the part has changed: notes its step, and when that began. */
void steps_note(struct rdzv *rdzv, struct job *job, uint32_t part);
void steps_note_all(struct rdzv *rdzv, struct job *job);
/* When the step of the part is overdue; UINT64_MAX: never. */
uint64_t steps_due_us(const struct job *job, uint32_t part);
/* The time before now does not count: its order is held back. */
void steps_again(struct rdzv *rdzv, const struct job *job, uint32_t part);
/* The limit of the part's step may be another one now. */
void steps_expect(struct rdzv *rdzv, const struct job *job, uint32_t part);
/* The part has been in a step of the start for long, although its node may have limits of its own. */
bool steps_is_slow(const struct rdzv *rdzv, const struct job *job, uint32_t part);
/* The node was heard; node->unheard_us says how long it had not been. */
void steps_heard(struct rdzv *rdzv, const struct node *node);
/* Its node's launcherd lists the part again, or reports it. While it did not (part_state.is_away) it got no orders for it, so
 * that time does not count. */
void steps_back(struct rdzv *rdzv, struct job *job, uint32_t part);
/* The server did not run for that long before now. */
void steps_paused(struct rdzv *rdzv, uint64_t paused_us);

#endif
