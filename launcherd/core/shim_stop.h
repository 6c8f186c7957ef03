/* How a shim ends its workers and the processes that they leave behind. Part of the shim's core.
 *
 *   a rank has failed   SIGTERM to the others, then the job's grace, then SIGKILL
 *   `stop`              its signal, its grace, then SIGKILL
 *   all ranks exited 0  processes that they left have SHIM_QUIET_US to end by themselves; then SIGTERM,
 *                       SHIM_LEFT_GRACE_US (or the job's grace, if that is shorter), SIGKILL
 *   lease, `forget`     SIGKILL at once
 *
 * In each case the shim ends as soon as no process is left.
 *
 * A signal goes to the rank's process first, because a rank that writes a checkpoint needs its DataLoader's workers;
 * SHIM_LATE_US (or a quarter of the grace, if that is shorter) before the kill also to others that may have something to
 * save; and when all ranks have ended to what they have left, which has the rest of the grace, because a rank may be a
 * shell that SIGTERM ends before its program. process/signal_rule.h says which process gets it when. */
#ifndef LAUNCHERD_CORE_SHIM_STOP_H
#define LAUNCHERD_CORE_SHIM_STOP_H

#include "launcherd/core/shim.h"

/* Python's resource tracker, for example, ends a moment after the program. */
#define SHIM_QUIET_US 500000u
#define SHIM_LEFT_GRACE_US 5000000u
#define SHIM_LATE_US 10000000u
/* How often it looks what the ended ones have left: a program that has saved leaves its own processes. */
#define SHIM_LEFT_LOOK_US 200000u

void shim_add(struct shim_actions *actions, struct shim_action action);
void shim_change(struct shim *shim);
/* Records the cause, unless there is one already: the first failure is the cause. `rank`: global;
 * -1: none. The text may quote a command or a path with any bytes. It is made printable, because a
 * report with a text that no message can carry would never arrive. */
__attribute__((format(printf, 5, 6))) void shim_fail(struct shim *shim,
                                                     const struct shim_event *event,
                                                     enum failure_class class, int32_t rank,
                                                     const char *format, ...);
void shim_set_phase(struct shim *shim, enum shim_phase phase, uint64_t now_us);
/* No worker is running or being spawned. */
bool shim_workers_are_gone(const struct shim *shim);
void shim_end_if_over(struct shim *shim, uint64_t now_us);

void shim_kill_tree(struct shim *shim, struct shim_actions *actions);
/* Kills every worker without grace. Before `go` there are no workers, so the shim ends. */
void shim_stop_now(struct shim *shim, uint64_t now_us, struct shim_actions *actions);
/* Sends the signal, waits for the grace, then kills. A second call can shorten the grace or change
 * the signal. */
void shim_stop_gently(struct shim *shim, uint64_t now_us, uint32_t signal, uint64_t grace_us,
                      struct shim_actions *actions);
/* A rank has failed and the cause is recorded: stops the others. */
void shim_stop_peers(struct shim *shim, uint64_t now_us, struct shim_actions *actions);
/* The last worker has ended; `in_success`: all of them exited 0. */
void shim_workers_gone(struct shim *shim, uint64_t now_us, bool in_success,
                       struct shim_actions *actions);
/* Does what is due by time. */
void shim_check_grace(struct shim *shim, uint64_t now_us, struct shim_actions *actions);
/* When that is; UINT64_MAX: never. */
uint64_t shim_stop_timer_us(const struct shim *shim);

#endif
