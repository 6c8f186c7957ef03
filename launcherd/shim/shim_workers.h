/* The workers of a shim as processes: starts them, reads their messages and output, signals and
 * reaps them, and kills all processes below the shim. Part of the edge of the shim: it turns what
 * happens into events of the core (core/shim.h).
 *
 * The shim is a subreaper: an orphan below it becomes its child, even after setsid and a double
 * fork. So when the kernel reports that there is no child (ECHILD), no process is left. Until then
 * the kill is repeated after each death. */
#ifndef LAUNCHERD_SHIM_SHIM_WORKERS_H
#define LAUNCHERD_SHIM_SHIM_WORKERS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/io/conn.h"
#include "common/io/file_work.h"
#include "launcherd/shim/failures.h"
#include "launcherd/shim/leftovers.h"
#include "launcherd/shim/input.h"
#include "launcherd/shim/output.h"
#include "launcherd/shim/shm_watch.h"
#include "launcherd/shim/store_child.h"
#include "launcherd/shim/store_probe.h"
#include "launcherd/shim/tools_dir.h"
#include "launcherd/shim/warm_workers.h"
#include "launcherd/shim/worker_env.h"
#include "launcherd/process/account.h"
#include "launcherd/process/cgroup.h"
#include "launcherd/process/proc.h"
#include "launcherd/core/shim.h"

struct shim_workers_options {
    uv_loop_t *loop;
    struct file_works *files;
    const struct msg_start *start; /* borrowed, like all pointers here */
    const char *run_dir, *log_dir, *node_name, *node_address;
    uint32_t gpus;
    uint32_t devices[SLOTS_PER_NODE_MAX]; /* [gpus]: the NVML index of each slot's GPU */
    bool hides_gpus;
    uint64_t log_max; /* bytes of the log of a rank; 0: no limit */
    const char *token;
    const char *cgroup; /* of the workers; made already only if `warm` has one; empty: none */
    const struct warm_workers *warm; /* NULL: none */
    void *owner;
    void (*post)(void *owner, struct shim_event event); /* queues an event during an action */
    /* The answer to worker_ends_input. */
    void (*on_input)(void *owner, const struct msg_input_state *state);
    void (*step)(void *owner, struct shim_event event); /* gives an event; not during an action */
};

struct worker_take; /* launcherd/shim/worker_take.h */

struct shim_worker {
    struct shim_workers *workers;
    uint32_t local;
    pid_t pid;              /* 0: none, or reaped */
    pid_t group;            /* its process group and session; kept when it is reaped */
    int signalled;          /* the last signal sent to it while it ran; 0: none */
    uint64_t dump_until_ms; /* loop time: spared until then for its core file; 0: it writes none */
    bool conn_open;
    struct conn conn;
    struct output output;
    struct input input;
    char error_text[TAIL_BYTES_MAX]; /* the text of its worker_error */
    char spawn_text[256];
    char exit_text[REASON_BYTES_MAX]; /* the text of its EXITED or RAISED */
    char error[TAIL_BYTES_MAX];       /* its exception, once it has failed */
    char core[REASON_BYTES_MAX];      /* where its core file is; empty: it left none */
    bool was_oom;
    struct worker_take *take; /* owned; NULL: not warm, or it has taken its rank */
};

struct shim_workers {
    struct shim_workers_options options;
    uv_timer_t sweep_timer, dump_timer;
    uint32_t sweeps;
    bool killing;  /* a kill goes on until no process is left */
    bool watching; /* TREE_EMPTY must be given when no process is left */
    struct leftovers left;
    struct log_writer writer;
    struct failures failures;
    struct shm_watch shm;
    bool closed, disk_hangs;
    int port_fd;                         /* bound to the master port, to reserve it */
    struct account account;              /* of the workers */
    bool as_self;                        /* the workers run as the user of this process */
    bool has_cgroup;                     /* it was made, and must be removed */
    uint64_t memory_bytes;               /* limit of the cgroup; 0: none */
    char master_addr[ADDRESS_BYTES_MAX]; /* from SPAWN_ALL */
    uint32_t master_port;
    char node_address[ADDRESS_BYTES_MAX]; /* part_address.h */
    struct store_probe probe;
    char rank_cgroup[PATH_MAX]; /* of the workers without the store */
    struct store_child store;
    bool has_store; /* this shim runs the c10d store of the generation */
    char oom_text[96];
    char error_dir[PATH_MAX];
    struct tools tools;
    struct warm_workers warm; /* warm workers without a rank */
    struct shim_worker items[SLOTS_PER_NODE_MAX];
};

void shim_workers_init(struct shim_workers *workers, const struct shim_workers_options *options);
/* Closes every handle; the loop must run once more. A second call does nothing. */
void shim_workers_close(struct shim_workers *workers);
/* Call after shim_workers_close, when the loop has ended. False: a thread hangs on a disk, and the
 * process must end with _exit. */
bool shim_workers_are_closed(const struct shim_workers *workers);

/* Starts the thread that writes the logs, and from then on the lines of this process. Call after the preflight, which forks: the
 * child would not have this thread. */
enum status shim_workers_open_writer(struct shim_workers *workers, struct err *err);
/* `logs`: of each local rank, opened, and from now on the workers'. Call before the first action. */
void shim_workers_take_logs(struct shim_workers *workers, const struct log_file *logs);
/* Call before the first action. Takes the account of the workers with its `groups`, and makes their
 * cgroup. If the job's cgroup cannot be made, that is an error
 * only with a limit of memory; otherwise it is logged. */
enum status shim_workers_prepare(struct shim_workers *workers, struct account *account,
                                 bool as_self, const struct cgroup_limits *limits, struct err *err);

/* The actions of core/shim.h that concern processes. They post STORE_STARTED, SPAWNED,
 * SPAWN_FAILED, TREE_EMPTY. */
void shim_workers_spawn(struct shim_workers *workers, const char *master_addr,
                        uint32_t master_port);
/* Kills a warm worker that has not taken its rank. When it has ended, spawn_one starts another
 * process in its place. */
void shim_workers_kill_one(const struct shim_workers *workers, uint32_t local);
void shim_workers_spawn_one(struct shim_workers *workers, uint32_t local);
/* Kills all processes. `grace_is_over`: first names them in the logs of the ranks, which may take LEFTOVERS_LOOK_MS. */
void shim_workers_kill(struct shim_workers *workers, bool grace_is_over);
void shim_workers_check(struct shim_workers *workers);
/* No child except the store is left, and no process in the cgroup of the workers, even one that others moved there. */
bool shim_workers_tree_is_empty(const struct shim_workers *workers);
void shim_workers_send_world(struct shim_workers *workers, uint32_t local, const uint8_t *bytes,
                             uint32_t byte_count);

/* Call on SIGCHLD. Gives the core EXITED for each worker that has ended, STORE_EXITED, and
 * TREE_EMPTY. */
void shim_workers_reap(struct shim_workers *workers);
/* The texts of a report. */
struct shim_workers_texts {
    char tail[TAIL_BYTES_MAX], error[TAIL_BYTES_MAX];
};
/* Fills in what the report says about a worker that failed: its last lines, or the text of its
 * worker_error; its exception; whether memory was short; its core file. The report borrows from
 * `texts` and `workers`. */
void shim_workers_tell(const struct shim_workers *workers, uint32_t local,
                       struct shim_workers_texts *texts, struct msg_shim_report *report);

#endif
