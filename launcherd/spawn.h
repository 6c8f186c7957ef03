/* Starts one process: descriptors, session, user, directory, program. The child shares our memory
 * until it runs its program (as vfork and posix_spawn do), so the cost does not grow with ours. */
#ifndef LAUNCHERD_SPAWN_H
#define LAUNCHERD_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/status.h"

#define SPAWN_EXTRA_FD 3 /* where extra_fd is found by the new process */

/* Whom the process runs as. */
struct spawn_user {
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* owned; spawn_user_free */
    uint32_t group_count;
    char home[256];
    char name[64];
};

struct spawn_order {
    const char *path; /* the program; NULL: argv[0], looked up in `search` unless it has a slash */
    char *const *argv;
    char *const *envp;
    const char *search;            /* a PATH; NULL: argv[0] is a path */
    const char *cwd;               /* NULL: ours */
    const struct spawn_user *user; /* NULL: as ourselves */
    int stdin_fd, stdout_fd, stderr_fd;
    int extra_fd;          /* -1: none */
    bool dies_with_parent; /* SIGKILL when we end, however we end */
};

/* The process leads a session of its own; no descriptor but those named is open in it; signals are
 * as at the start of a program. On failure `exit_code` says what a shell would: 127 not found, 126
 * found but cannot be run, 125 ours; `err` says which and why. */
enum status spawn_process(const struct spawn_order *order, pid_t *pid, int *exit_code,
                          struct err *err);

/* Groups and home of `uid`, as the system's user database has them. STATUS_NOT_FOUND. */
enum status spawn_user_find(struct spawn_user *user, uid_t uid, struct err *err);
void spawn_user_free(struct spawn_user *user);

#endif
