/* The c10d store of a generation (docs/c10d-store.md) as a child of the shim. It runs as the job's
 * user, so that nothing that parses bytes from the network runs as launcherd's user.
 * core/shim_store.h decides when it ends. Part of the edge of the shim. */
#ifndef LAUNCHERD_SHIM_STORE_CHILD_H
#define LAUNCHERD_SHIM_STORE_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/msg.h"
#include "common/status.h"
#include "launcherd/process/account.h"

/* The process is the child of a thread of its own. So waitid tells with __WNOTHREAD, for all others together, whether there is
 * one, without a search through /proc. */
struct store_child {
    pid_t pid;       /* 0: none, or reaped */
    bool has_parent; /* the thread runs: if it ended, the kernel would kill its child */
    uv_thread_t parent;
    uv_sem_t may_end;
    int status_fd;       /* listens at RUN_DIR/store.sock; set by the owner, closed here */
    uv_timer_t patience; /* the time from SIGTERM to SIGKILL */
    char text[96];       /* how it ended */
};

struct store_child_order {
    const struct msg_pair_list *nodes; /* the nodes that may connect: names and addresses */
    const struct account *user;        /* NULL: the user of this process */
    const char *cgroup;                /* NULL: that of this process */
    uint64_t cgroup_bytes;             /* the memory limit of that cgroup; 0: none */
    const char *token;                 /* of the job, for the store's environment */
    int listen_fd, log_fd;
};

/* Whether the ranks of this job use our c10d store. All nodes of the job get the same answer. */
bool store_child_is_wanted(const struct msg_start *start);

void store_child_init(struct store_child *store, uv_loop_t *loop);
/* Closes its handle and socket; the process is killed if it still runs. The loop must run once more. */
void store_child_close(struct store_child *store);

/* Listens on `listen_fd`, a bound socket, so that no client is refused from now on. */
enum status store_child_listen(int listen_fd, struct err *err);
enum status store_child_spawn(struct store_child *store, const struct store_child_order *order,
                              struct err *err);
/* Sends SIGTERM, and SIGKILL if the store has not ended 1 s later. */
void store_child_end(struct store_child *store);
/* Call when the store was reaped, with its `info`. Returns a text that says how it ended, valid
 * until the next call. */
const char *store_child_ended(struct store_child *store, const siginfo_t *info);

#endif
