/* Processes, from /proc: identifies a shim after a restart of launcherd, and finds the processes
 * that a job left. Linux. Blocks only as long as reading /proc takes. */
#ifndef LAUNCHERD_PROCESS_PROC_H
#define LAUNCHERD_PROCESS_PROC_H

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROC_TOKEN_CHARS 32u
#define PROC_TOKEN_NAME "DDP_JOB_TOKEN"
/* A new one. */
void proc_token_make(char token[PROC_TOKEN_CHARS + 1]);

/* One process. Its start time tells it from a later one with the same pid. */
struct proc_found {
    pid_t pid, group, session;
    uint64_t start_ticks;
    char name[16]; /* of the program, as the kernel cuts it; any bytes */
};

/* What the kernel says of it now; also of a thread. */
struct proc_stat {
    struct proc_found is;
    pid_t ppid;
    char state;
    uint64_t cpu_ticks;
};

/* Of /proc/PID, or of /proc/PID/task/TID: `dir`. False: it is gone. */
bool proc_stat_read(const char *dir, struct proc_stat *stat);
bool proc_stat_of(pid_t pid, struct proc_stat *stat);
/* The next number in an open folder of /proc; 0 at the end. */
pid_t proc_next_pid(DIR *dir);

/* Start time of `pid` in clock ticks since boot; 0: no such process (a zombie does not count).
 * Together with the boot id it identifies a process for ever, while a pid is used again. */
uint64_t proc_start_ticks(pid_t pid);
/* Stopped by a signal, or by a debugger: it would answer nothing. */
bool proc_is_stopped(pid_t pid);
/* The id of this boot; "unknown" where the kernel has none. */
void proc_boot_id(char *text, uint32_t text_bytes);
/* Reaps the next of our children that has ended, if there is one. */
bool proc_reap(siginfo_t *info);
/* A pidfd of the process, close-on-exec; -1 and errno where it is gone. */
int proc_pidfd(pid_t pid);

/* Whether the process is writing its core file, which it does before its end can be seen. `*signal`: what
 * it dies of; 0 where the kernel does not say so yet (before Linux 6.7, or of another user). */
bool proc_dumps_core(pid_t pid, uint32_t *signal);

/* Whether the process `parent` has a child, also one that it has not reaped, other than `but`. */
bool proc_has_child(pid_t parent, pid_t but);

/* A process whose second word is `word` and whose third names the directory `path`; 0: none. */
pid_t proc_find_command(const char *word, const char *path);

/* Whether a variable in its environment begins with these bytes: "NAME=value"; with the NUL it is
 * exactly that. False also where we may not read it. */
bool proc_environment_has(pid_t pid, const char *entry, size_t entry_bytes);

/* Sends SIGKILL to every process, except ourselves, that has PROC_TOKEN_NAME=token in its
 * environment; returns how many it found alive. Skips processes of other users whose environment we
 * may not read. */
uint32_t proc_kill_token(const char *token);
/* Sends SIGKILL to every descendant of `parent`; returns how many it found alive. Skips the
 * children of `parent` for which `is_spared` is true, and their descendants. NULL: skips none. */
uint32_t proc_kill_descendants(pid_t parent, bool (*is_spared)(void *arg, pid_t pid), void *arg);
/* The same processes, the first `most` of them. */
uint32_t proc_find_descendants(pid_t parent, bool (*is_spared)(void *arg, pid_t pid), void *arg,
                               struct proc_found *found, uint32_t most);
/* Signals the process, unless it has ended since it was found. */
void proc_signal_exactly(const struct proc_found *found, int signal);

#endif
