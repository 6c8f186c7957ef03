/* Processes, from /proc: identifies a shim after a restart of launcherd, and finds the processes
 * that a job left. Linux. Blocks only as long as reading /proc takes. */
#ifndef LAUNCHERD_PROCESS_PROC_H
#define LAUNCHERD_PROCESS_PROC_H

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#define PROC_TOKEN_CHARS 32u
#define PROC_TOKEN_NAME "DDP_JOB_TOKEN"
/* Makes a random token. */
void proc_token_make(char token[PROC_TOKEN_CHARS + 1]);

#define PROC_PROGRAM_BYTES 64u

/* One process. Its start time tells it from a later one with the same pid. */
struct proc_found {
    pid_t pid, parent, group, session;
    uint64_t start_ticks;
    char name[16]; /* of the program, truncated by the kernel; any bytes */
};

/* The kernel's present values for a process or thread. */
struct proc_stat {
    struct proc_found is;
    char state;
    uint64_t cpu_ticks;
};

/* `dir`: /proc/PID or /proc/PID/task/TID. False: it is gone. */
bool proc_stat_read(const char *dir, struct proc_stat *stat);
bool proc_stat_of(pid_t pid, struct proc_stat *stat);
/* The next number in an open folder of /proc; 0 at the end. */
pid_t proc_next_pid(DIR *dir);

/* The user of the process. False: it is gone, or /proc hides it. */
bool proc_user(pid_t pid, uid_t *user);
/* Start time of `pid` in clock ticks since boot; 0: no such process (zombies do not count). Start
 * time and boot id together identify a process for ever, although pids are reused. */
uint64_t proc_start_ticks(pid_t pid);
/* Stopped by a signal or a debugger: it does not answer anything. */
bool proc_is_stopped(pid_t pid);
/* The id of this boot of the kernel; BOOT_ID_UNKNOWN if there is none, or only a container's own, which is another one
 * when the container starts again, and proves nothing about the machine. */
void proc_boot_id(char *text, uint32_t text_bytes);
/* The pid namespace that /proc shows, "pid:[4026531836]"; empty: not known. Pids are of it, and processes of another one
 * may not be seen. */
void proc_pid_ns(char text[32]);
/* Reaps the next ended child. False: there is none. */
bool proc_reap(siginfo_t *info);
/* A pidfd of the process, close-on-exec; -1 and errno if the process is gone. */
int proc_pidfd(pid_t pid);

/* Whether the process is writing its core file; its end is only visible after that. `*signal`: the
 * signal that kills it; 0 if the kernel does not tell (before Linux 6.7, or another user's
 * process). */
bool proc_dumps_core(pid_t pid, uint32_t *signal);

/* Whether the process has `word` as its second word. False also if that cannot be read. */
bool proc_has_word(pid_t pid, const char *word);
/* A process with `word` as its second word and the directory `path` as its third; 0: none. */
pid_t proc_find_command(const char *word, const char *path);
/* Calls `take` for each process with `word` as its second word, with the two words after that; "": there is none. Not for
 * a child that has all words of its parent: it has not become its own program yet. The start time was read before the
 * words. False: /proc cannot be read. */
bool proc_each_command(const char *word,
                       void (*take)(void *owner, const struct proc_found *found, const char *third,
                                    const char *fourth),
                       void *owner);
/* Whether this path of the process names that directory. Another container may have the same path for another one, so it is
 * looked up from the root of the process; from ours, if that may not be seen. */
bool proc_is_folder_of(pid_t pid, const char *name, const struct stat *wanted);

/* Whether it has a handler for the signal, or blocks it, as one does that waits for it (sigwait, signalfd). True also if that cannot be read. */
bool proc_answers(pid_t pid, int signal);
/* Whether it ignores the signal. False also if that cannot be read. */
bool proc_ignores(pid_t pid, int signal);
/* These three read links of /proc only, and so wait for no disk. */
/* The name of the file that it runs, without folders: "bash" for a script of bash, whatever the script is called. Empty: not
 * known. */
void proc_program(pid_t pid, char name[PROC_PROGRAM_BYTES]);
/* Equal for processes that run the same file. 0: not known. */
uint64_t proc_program_id(pid_t pid);
/* The number of the pipe that this descriptor is an end of. 0: of none, or not known. */
uint64_t proc_pipe(pid_t pid, int fd);

/* Whether a variable in its environment begins with these bytes, "NAME=value"; if the NUL is
 * included, whether one is exactly that. False also if we may not read the environment. */
bool proc_environment_has(pid_t pid, const char *entry, size_t entry_bytes);

/* Sends SIGKILL to every process, except ourselves, that has PROC_TOKEN_NAME=token in its
 * environment; returns how many it found alive. Skips processes of other users whose environment we
 * may not read. */
uint32_t proc_kill_token(const char *token);
/* Sends SIGKILL to every descendant of `parent`; returns how many it found alive. Skips the
 * children of `parent` for which `is_spared` is true, and their descendants. NULL: skips none. */
uint32_t proc_kill_descendants(pid_t parent, bool (*is_spared)(void *arg, pid_t pid), void *arg);
/* Finds the same processes without a signal; the first `most` of them, parents before their children. */
uint32_t proc_find_descendants(pid_t parent, bool (*is_spared)(void *arg, pid_t pid), void *arg,
                               struct proc_found *found, uint32_t most);
/* Signals the process if it is still the one that was found. */
void proc_signal_exactly(const struct proc_found *found, int signal);

#endif
