/* What the parts of the launcher's core share: launcher.c (the server, time), launcher_shims.c
 * (orders, shims), launcher_slots.c and launcher_judge.c (GPUs), launcher_say.c (actions, beats,
 * reports). Private to them. */
#ifndef LAUNCHERD_LAUNCHER_STATE_H
#define LAUNCHERD_LAUNCHER_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcherd/launcher.h"

/* -- launcher_say.c */
void launcher_copy(char *to, size_t to_bytes, const char *from);
struct launcher_action *launcher_add(struct launcher_actions *actions,
                                     struct launcher_action action);
/* The message of the new action, to fill in. */
struct msg *launcher_send_server(struct launcher_actions *actions, enum msg_type type);
struct msg *launcher_send_shim(struct launcher_actions *actions, const struct launcher_shim *shim,
                               enum msg_type type);
/* More lines in one step than there is room for are left out: they are for people only. */
void launcher_note(struct launcher_actions *actions, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct launcher_shim *launcher_find(struct launcher *launcher, uint64_t job_id,
                                    uint32_t generation);
/* Another server's shims are neither listed nor ordered about. Before the first welcome we cannot
 * know whose they are, and list all. */
bool launcher_serves(const struct launcher *launcher, const struct launcher_shim *shim);
void launcher_remove(struct launcher *launcher, struct launcher_shim *shim,
                     struct launcher_actions *actions);
uint32_t launcher_list(const struct launcher *launcher, struct part_beat_shim *out);
/* What there is to say about a shim that cannot speak any more. */
void launcher_report_dead(struct launcher_actions *actions, const struct launcher_shim *shim,
                          uint64_t now_us);
void launcher_beat(struct launcher *launcher, uint64_t now_us, struct launcher_actions *actions);

/* -- launcher_slots.c */
/* A GPU's slot that must not be given out now: the lowest of `mask`; -1: there is none. */
int launcher_slot_closed(const struct launcher *launcher, uint64_t mask);
uint32_t launcher_list_closed(const struct launcher *launcher, struct part_slot_closed *out);
void launcher_slots_kept(struct launcher *launcher, const struct msg_slots_kept *kept);
/* Once all shims are adopted: what is idle must be proved free. */
void launcher_slots_begin(struct launcher *launcher, uint64_t now_us);
void launcher_on_gpu(struct launcher *launcher, const struct launcher_event *event,
                     struct launcher_actions *actions);
void launcher_on_xid(struct launcher *launcher, const struct launcher_event *event,
                     struct launcher_actions *actions);
void launcher_slot_resume(struct launcher *launcher, const struct msg_slot_resume *resume,
                          uint64_t now_us, struct launcher_actions *actions);
/* At the end of every step: slots that were left, questions that are due, what must be told. */
void launcher_slots_settle(struct launcher *launcher, uint64_t now_us,
                           struct launcher_actions *actions);
uint64_t launcher_slots_timer_us(const struct launcher *launcher);

/* -- launcher_shims.c */
void launcher_start(struct launcher *launcher, const struct launcher_event *event,
                    struct launcher_actions *actions);
void launcher_order(struct launcher *launcher, const struct launcher_event *event, uint64_t job_id,
                    uint32_t generation, struct launcher_actions *actions);
void launcher_adopt(struct launcher *launcher, const struct launcher_event *event,
                    struct launcher_actions *actions);
void launcher_on_shim(struct launcher *launcher, const struct launcher_event *event,
                      struct launcher_actions *actions);

#endif
