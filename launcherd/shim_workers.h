/* The workers of a shim as processes: how they are started, heard, signalled, reaped, and how the
 * whole tree below the shim is brought to an end. Part of the shim's edge: what it sees becomes
 * events of the core (shim.h).
 *
 * The shim is a subreaper: whatever a worker leaves behind, with setsid and double forks too,
 * becomes its child when its parent ends. So the tree is empty exactly when the kernel says that
 * there is no child (ECHILD), and a kill is repeated at each death until then. */
#ifndef LAUNCHERD_SHIM_WORKERS_H
#define LAUNCHERD_SHIM_WORKERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/io/conn.h"
#include "launcherd/output.h"
#include "launcherd/proc.h"
#include "launcherd/shim.h"

struct shim_workers_options {
    uv_loop_t *loop;
    const struct msg_start *start; /* borrowed, as all here */
    const char *log_dir, *node_name, *node_address;
    uint32_t gpus;
    char token[PROC_TOKEN_CHARS + 1];
    void *owner;
    void (*post)(void *owner, struct shim_event event); /* from within an action: queue it */
    void (*step)(void *owner, struct shim_event event); /* from a callback: now */
};

struct shim_worker {
    struct shim_workers *workers;
    uint32_t local;
    pid_t pid; /* 0: none, or reaped */
    bool conn_open;
    struct conn conn;
    struct output output;
    char error_text[TAIL_BYTES_MAX]; /* worker_error */
    char spawn_text[256];
};

struct shim_workers {
    struct shim_workers_options options;
    uv_timer_t sweep_timer;
    uint32_t sweeps;
    bool killing; /* until nothing is left */
    bool closed;
    int port_fd; /* holds the master port; -1: none */
    struct shim_worker items[SLOTS_PER_NODE_MAX];
};

void shim_workers_init(struct shim_workers *workers, const struct shim_workers_options *options);
/* Close every handle; the loop must run once more. Again is nothing. */
void shim_workers_close(struct shim_workers *workers);

/* The actions of shim.h that concern processes. They post PORT, SPAWNED, SPAWN_FAILED, TREE_EMPTY.
 */
void shim_workers_reserve_port(struct shim_workers *workers);
void shim_workers_spawn(struct shim_workers *workers, const char *master_addr,
                        uint32_t master_port);
void shim_workers_signal(const struct shim_workers *workers, int signal);
void shim_workers_kill(struct shim_workers *workers);
void shim_workers_check(struct shim_workers *workers);
void shim_workers_send_world(struct shim_workers *workers, uint32_t local, const uint8_t *bytes,
                             uint32_t byte_count);

/* On SIGCHLD: steps EXITED for each worker that has ended, and TREE_EMPTY. */
void shim_workers_reap(struct shim_workers *workers);
/* The last lines of a worker, and what it said of itself in worker_error. */
void shim_workers_tail(const struct shim_workers *workers, uint32_t local,
                       char out[TAIL_BYTES_MAX]);

#endif
