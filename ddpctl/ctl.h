/* One run of ddpctl: its options, its screen, and how it ends. */
#ifndef DDPCTL_CTL_H
#define DDPCTL_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/msg.h"
#include "common/status.h"
#include "ddpctl/options.h"
#include "ddpctl/screen.h"

enum ctl_exit {
    CTL_OK = 0,
    CTL_FAILED = 1,
    CTL_USAGE = 2,
    CTL_NOT_FOUND = 3,
    CTL_DENIED = 4,
    CTL_UNREACHABLE = 5,
    CTL_TIMEOUT = 124, /* of attached verbs */
    CTL_OURS = 125,    /* of attached verbs: all of the above but the time-out */
};

struct ctl {
    struct options options;
    struct screen screen;
    const char *verb_name;
    bool is_attached;   /* run, submit --wait, wait: exits with the job's code, with 125 for its own
                           failures */
    char *const *words; /* [word_count], NULL behind: what stands behind the options */
    int word_count;
};

/* Say what went wrong and return the exit code for it. `hint` may be empty. */
int ctl_fail(struct ctl *ctl, enum ctl_exit code, const char *message, const char *hint);
int ctl_fail_err(struct ctl *ctl, enum ctl_exit code, const struct err *err, const char *hint);
/* The server's `error`. */
int ctl_fail_answer(struct ctl *ctl, const struct msg_error *error);
/* The server could not be reached. */
int ctl_fail_server(struct ctl *ctl, const struct err *err);
/* An answer that nobody asked for. */
int ctl_fail_unexpected(struct ctl *ctl, const struct msg *msg);

/* What an ended job makes an attached verb exit with. */
int ctl_job_exit(const struct part_job *job);
/* "--server ADDRESS" for commands to copy, when it was not the default; else NULL. */
const char *ctl_server_shown(const struct ctl *ctl);

#endif
