/* Helper processes, `launcherd --doctor` (launcherd/doctor), that answer questions about this
 * machine, so that a check that hangs never blocks the loop. At most NODE_HELPERS_MAX at a time, of one user half of
 * them (ask_share.h). */
#ifndef LAUNCHERD_NODE_NODE_HELPERS_H
#define LAUNCHERD_NODE_NODE_HELPERS_H

#include "common/buf.h"
#include "common/io/file_work.h"
#include "launcherd/node/node_children.h"
#include "launcherd/node/node_host.h"

enum { NODE_HELPERS_MAX = 8 };

struct node_helpers;

/* One question, until its process has ended. A thread starts it (child_files.h). */
struct node_helper {
    struct node_helpers *helpers;
    bool is_used;     /* a handle is open, or the process is alive */
    bool is_answered; /* answered; whatever its process still does is ignored */
    pid_t pid;        /* 0: reaped, or not known yet */
    int pidfd;
    struct file_work *starting; /* on a thread; NULL: none */
    struct node_child *child;   /* its process, until `pid` is known or it is over; NULL: none */
    uint32_t handles_open;
    uint64_t request_id;
    uv_pipe_t pipe;
    uv_timer_t timer;
    struct buf answer;
    char chunk[4096];
};

struct node_helpers {
    const struct node_host *host;
    /* `json` is borrowed for the call. `problem` not empty: why there is no answer; `json` may be
     * NULL then. */
    void (*on_answer)(void *owner, uint64_t request_id, const struct buf *json,
                      const char *problem);
    void *owner;
    bool closed;
    struct node_helper items[NODE_HELPERS_MAX];
};

/* on_answer follows, possibly within this call, unless node_helpers_close is called first. */
void node_helpers_ask(struct node_helpers *helpers, const struct msg_node_ask *ask);
/* A child of this process was reaped. */
void node_helpers_reaped(struct node_helpers *helpers, pid_t pid);
/* Call when children were reaped: one whose start was given up may be gone. */
void node_helpers_check(struct node_helpers *helpers);
bool node_helpers_have(const struct node_helpers *helpers, pid_t pid);
/* Also kills the processes. */
void node_helpers_close(struct node_helpers *helpers);

#endif
