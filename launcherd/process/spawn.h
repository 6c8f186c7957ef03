/* Starts one process with its descriptors, session, user, directory and program. Until it runs its
 * program, the child shares our memory (as with vfork and posix_spawn), so the cost does not grow
 * with ours. */
#ifndef LAUNCHERD_PROCESS_SPAWN_H
#define LAUNCHERD_PROCESS_SPAWN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/job_limits.h"
#include "common/msg.h"
#include "common/status.h"
#include "launcherd/process/account.h"

#define SPAWN_EXTRA_FD 3 /* extra_fd has this number in the new process */

enum spawn_state {
    SPAWN_WAITS,   /* no child yet */
    SPAWN_BEGINS,  /* a child is being made, or has not run its program yet */
    SPAWN_OVER,    /* spawn_process has returned, or is about to */
    SPAWN_REFUSED, /* spawn_refuse: there will be no child */
};

/* What other threads may know of a start; zeroed before. With it spawn_process never reaps the child: another
 * thread does, so the number stays the child's until that thread knows of its end. */
struct spawn_watch {
    atomic_uint state; /* enum spawn_state */
    pid_t pid;         /* spawn_watch_pid reads it */
};

/* What a job has of its submitter's process, as far as the node allows it. */
struct spawn_limits {
    struct job_limits limits;
    uint32_t mask;
};

struct spawn_order {
    const char *path; /* the program; NULL: argv[0], searched in `search` unless it has a slash */
    char *const *argv;
    char *const *envp;
    const char *search;         /* a PATH; NULL: argv[0] is a path */
    const char *cwd;            /* NULL: ours */
    const struct account *user; /* NULL: as ourselves */
    const char *cgroup;         /* its folder; NULL: ours */
    int stdin_fd, stdout_fd, stderr_fd;
    int extra_fd;      /* -1: none */
    bool has_terminal; /* stdout_fd is a terminal, which becomes that of the new session */
    bool is_job;       /* with the limits and umask of jobs, and no new privileges */
    const struct spawn_limits *limits; /* of a job; NULL: the usual ones */
    bool
        dies_with_parent; /* it gets SIGKILL when the thread that starts it ends, however that happens */
    struct spawn_watch *watch; /* NULL: no other thread looks */
};

/* Reads them from a job's launch options, and lowers them to our hard limits; `cut`: as job_limits_fit. */
void spawn_limits_read(const struct msg_pair_list *launch, struct spawn_limits *limits, char *cut,
                       size_t cut_bytes);

/* Waits until the child has run its program: for ever, if the child is stopped before, or its disk hangs.
 * The process leads a session of its own, has only the named descriptors open, and has default
 * signal handling. On failure `exit_code` is what a shell would return: 127 not found, 126 found
 * but not runnable; or 125 for the machine's failure, which may pass (run_error.h). `err` has the
 * reason. */
enum status spawn_process(const struct spawn_order *order, pid_t *pid, int *exit_code,
                          struct err *err);

/* For another thread: the number of the child; 0: there is none yet. */
pid_t spawn_watch_pid(const struct spawn_watch *watch);
/* For another thread. True: there is no child, and none will be. */
bool spawn_refuse(struct spawn_watch *watch);

/* A file in memory for a process's output: close-on-exec, filled with zeros, and fixed in size, so
 * that a write beyond `byte_count` fails. -1: errno. */
int spawn_open_output(size_t byte_count);

/* /dev/null, which is no disk. -1: errno. */
int spawn_open_null(int flags);

/* Whether spawn_process could run `name` now; otherwise `code` is errno. */
bool spawn_find_program(const char *name, const char *search, int *code);

#endif
