/* Checks before a generation starts whether this node can run the job. A child process becomes the
 * job's user, enters the working directory and looks for the program, so that it sees what a worker
 * would see. If a disk or the user database does not answer, only the child hangs. Part of the edge
 * of the shim. */
#ifndef LAUNCHERD_SHIM_PREFLIGHT_H
#define LAUNCHERD_SHIM_PREFLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/buf.h"
#include "launcherd/process/account.h"
#include "launcherd/shim/stage_unpack.h"
#include "launcherd/shim/worker_env.h"

#define PREFLIGHT_MAX_MS 30000u
#define PREFLIGHT_STAGE_MAX_MS 600000u /* with a staged directory, which is unpacked */

/* The result of the check. */
struct preflight_result {
    int32_t code;           /* 0: the job can run; 126, 127: it cannot; 125: the check failed, which
                             * may pass (run_error.h) */
    bool as_self;           /* the job runs as the user of this process */
    struct account account; /* only if code is 0. Valid during on_done, which may take `groups` */
    char text[256];         /* only for other codes: for the submitter, with the node's name */
};

/* What the check does now: its text if that takes too long. */
enum preflight_step {
    PREFLIGHT_ACCOUNT,
    PREFLIGHT_LOGS,
    PREFLIGHT_STAGE,
    PREFLIGHT_CWD,
    PREFLIGHT_PROGRAM
};

/* What is done before the check; each may be NULL. */
struct preflight_more {
    const struct stage_source *stage; /* the staged working directory, which is unpacked */
    const char *error_dir; /* a folder for the user's error files, which is made among the logs */
    atomic_int *step;      /* is set to the enum preflight_step */
};

struct preflight {
    uv_poll_t poll;
    uv_timer_t timer;
    bool handles_open;
    bool unpacks; /* a staged directory */
    int fd, pidfd;
    pid_t pid;
    struct buf answer;
    const char *node, *error_dir;
    const struct msg_start *start;
    atomic_int *step; /* shared with the child; NULL: not known */
    void *owner;
    void (*on_done)(void *owner, struct preflight_result *result);
};

/* Begins the check. on_done is called once, from the loop or within this call, unless
 * preflight_close comes first. All but policy->node, env->start and more->error_dir, which stay until
 * on_done, are borrowed for the call; `more` may be NULL, and its `step` is not used. In `env`, master_addr, user,
 * home and shell need not be set. */
void preflight_begin(struct preflight *preflight, uv_loop_t *loop,
                     const struct account_policy *policy, const struct worker_env_facts *env,
                     const struct preflight_more *more);
/* Also kills the child. A second call does nothing; the loop must run once more. */
void preflight_close(struct preflight *preflight);

/* The part that the child does: here so that tests can call it. `own`: from account_own. `more` may be NULL. */
void preflight_check(const struct account_policy *policy, const struct account *own,
                     const struct worker_env_facts *env, const struct preflight_more *more,
                     struct preflight_result *result);

#endif
