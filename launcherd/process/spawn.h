/* Starts one process with its descriptors, session, user, directory and program. Until it runs its
 * program, the child shares our memory (as with vfork and posix_spawn), so the cost does not grow
 * with ours. */
#ifndef LAUNCHERD_PROCESS_SPAWN_H
#define LAUNCHERD_PROCESS_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/status.h"
#include "launcherd/process/account.h"

#define SPAWN_EXTRA_FD 3 /* extra_fd has this number in the new process */

struct spawn_order {
    const char *path; /* the program; NULL: argv[0], searched in `search` unless it has a slash */
    char *const *argv;
    char *const *envp;
    const char *search;         /* a PATH; NULL: argv[0] is a path */
    const char *cwd;            /* NULL: ours */
    const struct account *user; /* NULL: as ourselves */
    const char *cgroup;         /* its folder; NULL: ours */
    int stdin_fd, stdout_fd, stderr_fd;
    int extra_fd;          /* -1: none */
    bool has_terminal;     /* stdout_fd is a terminal, which becomes that of the new session */
    bool is_job;           /* with the limits and umask of jobs, and no new privileges */
    bool dies_with_parent; /* it gets SIGKILL when we end, however that happens */
};

/* The process leads a session of its own, has only the named descriptors open, and has default
 * signal handling. On failure `exit_code` is what a shell would return: 127 not found, 126 found
 * but not runnable; or 125 for the machine's failure, which may pass (run_error.h). `err` has the
 * reason. */
enum status spawn_process(const struct spawn_order *order, pid_t *pid, int *exit_code,
                          struct err *err);

/* A file in memory for a process's output: close-on-exec, filled with zeros, and fixed in size, so
 * that a write beyond `byte_count` fails. -1: errno. */
int spawn_open_output(size_t byte_count);

/* /dev/null, which is no disk. -1: errno. */
int spawn_open_null(int flags);

/* Whether spawn_process could run `name` now; otherwise `code` is errno. */
bool spawn_find_program(const char *name, const char *search, int *code);

#endif
