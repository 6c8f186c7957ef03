/* One run of ddpctl: its options, its screen, and how it ends. */
#ifndef DDPCTL_CTL_H
#define DDPCTL_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/msg.h"
#include "common/status.h"
#include "ddpctl/options.h"
#include "ddpctl/screen.h"
#include "ddpctl/server.h"

enum ctl_exit {
    CTL_OK = 0,
    CTL_FAILED = 1,
    CTL_USAGE = 2,
    CTL_NOT_FOUND = 3,
    CTL_DENIED = 4,
    CTL_UNREACHABLE = 5,
    CTL_TIMEOUT = 124, /* only with attached verbs */
    CTL_OURS = 125,    /* with attached verbs, for any of the above except the time-out */
};

struct ctl {
    struct options options;
    struct screen screen;
    struct server server; /* options.server is its address */
    const char *verb_name;
    bool
        server_is_on_line; /* --server was given on the command line, not by DDP_SERVER or a default */
    bool is_attached;   /* run, submit --wait, wait: exits with the code of the job, or with 125 for
                         * a failure of ddpctl */
    bool was_answered;  /* the server has answered a request: it may be gone only for a moment */
    char *const *words; /* [word_count], then NULL: the words after the options */
    int word_count;
};

/* Shows an error and returns its exit code. `hint` may be empty. */
int ctl_fail(struct ctl *ctl, enum ctl_exit code, const char *message, const char *hint);
int ctl_fail_err(struct ctl *ctl, enum ctl_exit code, const struct err *err, const char *hint);
/* The same for an `error` message of the server. */
int ctl_fail_answer(struct ctl *ctl, const struct msg_error *error);
/* The same if the server could not be reached. */
int ctl_fail_server(struct ctl *ctl, const struct err *err);
/* The same for a message that does not answer the request. */
int ctl_fail_unexpected(struct ctl *ctl, const struct msg *msg);
/* How long a verb tries to reach a server that was lost: --patience with -f, else a few seconds. */
uint64_t ctl_patience_us(const struct ctl *ctl);

/* `code`, but that of a failure if output was lost. An attached verb cancels its job then, which may end by itself
 * meanwhile: the code does not depend on which comes first. */
int ctl_exit_written(const struct ctl *ctl, int code);

/* The exit code of an attached verb for an ended job. */
int ctl_job_exit(const struct part_job *job);
/* "--server ADDRESS" for commands to copy; NULL: the default server is used. */
const char *ctl_server_shown(const struct ctl *ctl);

#endif
