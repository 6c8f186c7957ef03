/* What the two files about slots share: launcher_slots.c (states, questions) and launcher_judge.c
 * (what an answer means). Private to them. */
#ifndef LAUNCHERD_LAUNCHER_SLOTS_H
#define LAUNCHERD_LAUNCHER_SLOTS_H

#include "launcherd/fault.h"
#include "launcherd/launcher_state.h"

#define GPU_CLEAN_US 5000000u  /* the usual end of a process and its memory */
#define GPU_SILENT_US 5000000u /* an answer of NVML takes milliseconds */
#define GPU_SLACK_BYTES (64ull << 20)

bool launcher_slot_in_use(const struct launcher *launcher, uint32_t index);
/* For people, here and at the server. */
void launcher_slot_tell(struct launcher *launcher, uint32_t index, const char *text,
                        struct launcher_actions *actions);
void launcher_slot_open(struct launcher *launcher, uint32_t index,
                        struct launcher_actions *actions);
/* A drained slot stays drained. */
void launcher_slot_close(struct launcher *launcher, uint32_t index, enum slot_state state,
                         struct launcher_actions *actions, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* `what` in words; what to do about it comes from `fault`. */
void launcher_slot_drain(struct launcher *launcher, uint32_t index, const struct fault *fault,
                         const char *what, uint64_t now_us, struct launcher_actions *actions);

#endif
