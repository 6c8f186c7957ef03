/* Before a generation starts: can this node run the job? A child becomes the job's user, enters the
 * working directory and looks for the program, so that it sees what a worker would see. A disk or a
 * user database that does not answer stops only the child. Part of the edge of the shim. */
#ifndef LAUNCHERD_SHIM_PREFLIGHT_H
#define LAUNCHERD_SHIM_PREFLIGHT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/buf.h"
#include "launcherd/process/account.h"
#include "launcherd/shim/stage_unpack.h"
#include "launcherd/shim/worker_env.h"

#define PREFLIGHT_MAX_MS 30000u

/* How it went. */
struct preflight_result {
    int32_t
        code; /* 0: the job can run; 126, 127: it cannot; 125: not known (no answer, no memory) */
    bool as_self;           /* as the user of this process */
    struct account account; /* with code 0; valid in the call, except that `groups` may be taken */
    char text[256];         /* with any other code: for the submitter, with the node's name */
};

struct preflight {
    uv_poll_t poll;
    uv_timer_t timer;
    bool handles_open;
    int fd, pidfd;
    struct buf answer;
    const char *node;
    void *owner;
    void (*on_done)(void *owner, struct preflight_result *result);
};

/* A staged working directory is unpacked first; `stage` is NULL for others.
 *
 * Begins; on_done follows once, from the loop or within this call, unless it is closed before. `env`, of which
 * master_addr, user, home and shell need not be set, and `policy` are borrowed for the call, the
 * node's name longer. */
void preflight_begin(struct preflight *preflight, uv_loop_t *loop,
                     const struct account_policy *policy, const struct worker_env_facts *env,
                     const struct stage_source *stage);
/* Ends the child, too. A second call does nothing; the loop must run once more. */
void preflight_close(struct preflight *preflight);

/* What the child does, in this process: for tests. `own`: account_own. */
void preflight_check(const struct account_policy *policy, const struct account *own,
                     const struct worker_env_facts *env, const struct stage_source *stage,
                     struct preflight_result *result);

#endif
