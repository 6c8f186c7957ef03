/* Which slots may be used. Private to the core. Only the slot of a GPU has a state; a CPU share is
 * free whenever no shim has it.
 *
 *   free         its shim ended                                          -> checking
 *   free         a process or memory is on the GPU, without a shim       -> quarantined
 *   checking     nobody is on the GPU, memory is at its baseline         -> free
 *   checking     not so after the GPU timeout, or a stranger is on it    -> quarantined
 *   quarantined  nobody is on the GPU, memory is at its baseline         -> free
 *   not drained  the GPU is in MIG mode                                  -> quarantined
 *   not drained  NVML does not answer, or answers with an error          -> unknown
 *   unknown      NVML answers                                            -> what the answer shows
 *   any          a fault that drains (fault.h)                           -> drained
 *   drained      slot_resume that names the incident, or a new boot      -> checking
 *
 * NVML is asked periodically, one question at a time for each slot. Every answer names its
 * question; an answer to an earlier question is ignored. */
#ifndef LAUNCHERD_CORE_LAUNCHER_SLOTS_H
#define LAUNCHERD_CORE_LAUNCHER_SLOTS_H

#include "launcherd/core/fault.h"
#include "launcherd/core/launcher_actions.h"

#define GPU_SLACK_BYTES (64ull << 20) /* above the baseline, and still idle */
/* The most that an idle GPU uses while its baseline is not known. The driver takes some hundred
 * MiB. More than this belongs to a process that NVML does not see, for example in another
 * container. */
#define GPU_FIRST_BYTES_MAX (2ull << 30)

/* How many slots have a GPU. They are the first ones. */
uint32_t launcher_slots_with_gpu(const struct launcher *launcher);
/* NULL: slot `index` has no GPU. */
struct launcher_slot *launcher_slot_find(struct launcher *launcher, uint32_t index);
bool launcher_slot_in_use(const struct launcher *launcher, uint32_t index);
/* The lowest slot of `mask` that has a GPU and is not free; -1: there is none. */
int launcher_slots_first_closed(const struct launcher *launcher, uint64_t mask);
/* Fills `out` [SLOTS_PER_NODE_MAX] with the slots that are not free; returns how many. */
uint32_t launcher_slots_list_closed(const struct launcher *launcher, struct part_slot_closed *out);

/* Restores the saved record. One from another boot is ignored, since a restart of the machine
 * resets GPUs. */
void launcher_slots_load(struct launcher *launcher, const struct slots_record *record);
/* Call once all shims are adopted: every idle GPU must be proved free. */
void launcher_slots_begin(struct launcher *launcher, uint64_t now_us);
/* At the end of every step: handles slots whose shim has ended, asks due questions, saves the
 * record. */
void launcher_slots_settle(struct launcher *launcher, uint64_t now_us,
                           struct launcher_actions *actions);
/* When the slots need another step; UINT64_MAX: never. */
uint64_t launcher_slots_timer_us(const struct launcher *launcher);

/* Logs a line about a GPU and, while connected, sends it to the server as an event. */
void launcher_slot_event(struct launcher *launcher, uint32_t index, const char *text,
                         struct launcher_actions *actions);
void launcher_slot_open(struct launcher *launcher, uint32_t index,
                        struct launcher_actions *actions);
/* Sets a state that is not FREE, with its reason. A drained slot stays drained. */
void launcher_slot_close(struct launcher *launcher, uint32_t index, enum slot_state state,
                         struct launcher_actions *actions, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Drains a slot. `what`: the fault in words; the remedy of `fault` is appended. A slot that is
 * drained already keeps the reason of its first fault, unless the new one needs a restart of the
 * machine. Either way it gets a new incident number, so that a resume that was sent before this
 * fault does not clear it. */
void launcher_slot_drain(struct launcher *launcher, uint32_t index, const struct fault *fault,
                         const char *what, uint64_t now_us, struct launcher_actions *actions);
void launcher_slot_resume(struct launcher *launcher, const struct msg_slot_resume *resume,
                          uint64_t now_us, struct launcher_actions *actions);

#endif
