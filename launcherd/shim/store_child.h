/* The c10d store of a generation as a child of the shim (docs/c10d-store.md): a process of the job's user, so that nothing that
 * parses bytes of the network runs as launcherd's user. Part of the edge of the shim; when it may end is decided in
 * core/shim_store.h. */
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

struct store_child {
    pid_t pid; /* 0: none, or reaped */
    int status_fd;
    uv_timer_t patience; /* from SIGTERM to SIGKILL */
    char text[96];       /* how it ended */
};

struct store_child_order {
    const struct msg_pair_list *nodes; /* that may connect: names and addresses */
    const struct account *user;        /* NULL: as ourselves */
    const char *cgroup;                /* NULL: ours */
    uint64_t cgroup_bytes;             /* the limit of memory of that cgroup; 0: none */
    const char *token;                 /* of the job, for its environment */
    int listen_fd, log_fd;
};

/* Whether the ranks of this job meet in a store of ours. The same on every node of the job. */
bool store_child_is_wanted(const struct msg_start *start);

void store_child_init(struct store_child *store, uv_loop_t *loop);
/* The loop must run once more. */
void store_child_close(struct store_child *store);

/* The port begins to listen, so that no client is refused from now on; makes RUN_DIR/store.sock. */
enum status store_child_listen(struct store_child *store, const char *run_dir, int listen_fd,
                               struct err *err);
enum status store_child_spawn(struct store_child *store, const struct store_child_order *order,
                              struct err *err);
/* SIGTERM, then SIGKILL. */
void store_child_end(struct store_child *store);
/* `info` is of our process: how it ended, as text. */
const char *store_child_ended(struct store_child *store, const siginfo_t *info);

#endif
