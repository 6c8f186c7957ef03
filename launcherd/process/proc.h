/* Processes, from /proc: identifies a shim after a restart of launcherd, and finds the processes
 * that a job left. Linux. Blocks only as long as reading /proc takes. */
#ifndef LAUNCHERD_PROCESS_PROC_H
#define LAUNCHERD_PROCESS_PROC_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROC_TOKEN_CHARS 32u
#define PROC_TOKEN_NAME "DDP_JOB_TOKEN"

/* Start time of `pid` in clock ticks since boot; 0: no such process (a zombie does not count).
 * Together with the boot id it identifies a process for ever, while a pid is used again. */
uint64_t proc_start_ticks(pid_t pid);
/* The id of this boot; "unknown" where the kernel has none. */
void proc_boot_id(char *text, uint32_t text_bytes);
/* Reaps the next of our children that has ended, if there is one. */
bool proc_reap(siginfo_t *info);
/* A pidfd of the process, close-on-exec; -1 and errno where it is gone. */
int proc_pidfd(pid_t pid);

/* Whether the process is writing its core file, which it does before its end can be seen. `*signal`: what
 * it dies of; 0 where the kernel does not say so yet (before Linux 6.7, or of another user). */
bool proc_dumps_core(pid_t pid, uint32_t *signal);

/* A process whose second word is `word` and whose third names the directory `path`; 0: none. */
pid_t proc_find_command(const char *word, const char *path);

/* Sends SIGKILL to every process, except ourselves, that has PROC_TOKEN_NAME=token in its
 * environment; returns how many it found alive. Skips processes of other users whose environment we
 * may not read. */
uint32_t proc_kill_token(const char *token);
/* Sends SIGKILL to every descendant of `parent`; returns how many it found alive. Skips the
 * children of `parent` for which `is_spared` is true, and their descendants. NULL: skips none. */
uint32_t proc_kill_descendants(pid_t parent, bool (*is_spared)(void *arg, pid_t pid), void *arg);

#endif
