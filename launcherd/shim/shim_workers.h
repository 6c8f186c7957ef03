/* The workers of a shim as processes: starts them, reads their messages and output, signals and
 * reaps them, and kills all processes below the shim. Part of the edge of the shim: what happens
 * becomes events of the core (core/shim.h).
 *
 * The shim is a subreaper: an orphan below it becomes its child, even after setsid and a double
 * fork. So no process is left exactly when the kernel reports that there is no child (ECHILD).
 * Until then the kill is repeated after each death. */
#ifndef LAUNCHERD_SHIM_SHIM_WORKERS_H
#define LAUNCHERD_SHIM_SHIM_WORKERS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/io/conn.h"
#include "launcherd/shim/output.h"
#include "launcherd/shim/worker_env.h"
#include "launcherd/process/account.h"
#include "launcherd/process/cgroup.h"
#include "launcherd/process/proc.h"
#include "launcherd/core/shim.h"

struct shim_workers_options {
    uv_loop_t *loop;
    const struct msg_start *start; /* borrowed, as all pointers here */
    const char *log_dir, *node_name, *node_address;
    uint32_t gpus;
    uint32_t devices[SLOTS_PER_NODE_MAX]; /* [gpus]: of NVML, by slot */
    bool hides_gpus;
    uint64_t log_max; /* bytes of the log of a rank; 0: no limit */
    const char *token;
    const char *cgroup; /* the folder for the workers' cgroup, not made yet; empty: none */
    void *owner;
    void (*post)(void *owner, struct shim_event event); /* queues an event from within an action */
    void (*step)(void *owner, struct shim_event event); /* gives an event from a callback to the
                                                         * core */
};

struct shim_worker {
    struct shim_workers *workers;
    uint32_t local;
    pid_t pid; /* 0: none, or reaped */
    uint64_t
        dump_until_ms; /* of the loop: how long it may write its core file; 0: it writes none */
    bool conn_open;
    struct conn conn;
    struct output output;
    char error_text[TAIL_BYTES_MAX]; /* worker_error */
    char spawn_text[256];
};

struct shim_workers {
    struct shim_workers_options options;
    uv_timer_t sweep_timer, dump_timer;
    uint32_t sweeps;
    bool killing; /* a kill goes on until no process is left */
    struct log_writer writer;
    bool closed, disk_hangs;
    int port_fd;            /* bound to the master port, to reserve it */
    struct account account; /* of the workers */
    bool as_self;           /* they run as the user of this process */
    bool has_cgroup;        /* made, and to be removed */
    uint64_t memory_bytes;  /* its limit; 0: none */
    char oom_text[96];
    char error_dir[PATH_MAX];
    char tools_dir[PATH_MAX]; /* of ddp-worker; empty: not known */
    struct shim_worker items[SLOTS_PER_NODE_MAX];
};

void shim_workers_init(struct shim_workers *workers, const struct shim_workers_options *options);
/* Closes every handle; the loop must run once more. A second call does nothing. */
void shim_workers_close(struct shim_workers *workers);
/* After that and the loop. False: a disk hangs, and with it a thread: the process has to end by _exit. */
bool shim_workers_are_closed(const struct shim_workers *workers);

/* What the environment of every worker has; without account, master_addr and master_port. */
void shim_workers_facts(const struct shim_workers *workers, struct worker_env_facts *facts);
/* Before the first action: the account of the workers, whose `groups` are taken; makes their folder
 * for error files and their cgroup. Without a limit of memory the cgroup may fail: it is logged. */
enum status shim_workers_prepare(struct shim_workers *workers, struct account *account,
                                 bool as_self, const struct cgroup_limits *limits, struct err *err);

/* The actions of core/shim.h that concern processes. They post PORT, SPAWNED, SPAWN_FAILED,
 * TREE_EMPTY. */
void shim_workers_reserve_port(struct shim_workers *workers);
void shim_workers_spawn(struct shim_workers *workers, const char *master_addr,
                        uint32_t master_port);
void shim_workers_signal(const struct shim_workers *workers, int signal);
void shim_workers_kill(struct shim_workers *workers);
void shim_workers_check(struct shim_workers *workers);
void shim_workers_send_world(struct shim_workers *workers, uint32_t local, const uint8_t *bytes,
                             uint32_t byte_count);

/* On SIGCHLD: gives EXITED for each worker that has ended, and TREE_EMPTY, to the core. */
void shim_workers_reap(struct shim_workers *workers);
/* The last lines of a worker, or the text of its worker_error. */
void shim_workers_tail(const struct shim_workers *workers, uint32_t local,
                       char out[TAIL_BYTES_MAX]);

#endif
