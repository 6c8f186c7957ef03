/* What the kernel tells about processes: who is who after a restart, and finding what a job left
 * behind. Linux. Blocks only as long as /proc takes to answer. */
#ifndef LAUNCHERD_PROC_H
#define LAUNCHERD_PROC_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROC_TOKEN_CHARS 32u
#define PROC_TOKEN_NAME "DDP_JOB_TOKEN"

/* Clock ticks between boot and the start of `pid`; 0: no such process (a zombie counts as none).
 * With the boot id it names a process for ever, which a pid alone does not. */
uint64_t proc_start_ticks(pid_t pid);
/* This boot's id; "unknown" where the kernel does not say. */
void proc_boot_id(char *text, uint32_t text_bytes);
/* Takes the next of our children that has ended, if there is one. */
bool proc_reap(siginfo_t *info);
/* A descriptor of the process, close-on-exec; -1 and errno where it is gone. */
int proc_pidfd(pid_t pid);

/* SIGKILL to every process (not to ourselves) whose environment holds PROC_TOKEN_NAME=token. Those
 * of other users, whose environment we may not read, are not looked at. Answers how many it found
 * alive. */
uint32_t proc_kill_token(const char *token);
/* SIGKILL to every descendant of `parent`, but not to the children of `parent` that `is_spared`
 * names (NULL: none is), nor to what is below them. Answers how many it found alive. */
uint32_t proc_kill_descendants(pid_t parent, bool (*is_spared)(void *arg, pid_t pid), void *arg);

#endif
