/* The shims of a node as processes and connections. This file and node_shims.c: connect, send,
 * remove; node_start.h: their start; node_sweep.h: their end; node_adopt.h: those of an earlier
 * launcherd. */
#ifndef LAUNCHERD_NODE_NODE_SHIMS_H
#define LAUNCHERD_NODE_NODE_SHIMS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/io/conn.h"
#include "common/io/file_work.h"
#include "launcherd/node/node_children.h"
#include "launcherd/node/node_host.h"
#include "launcherd/process/doing.h"
#include "launcherd/process/lease_page.h"

/* The guard of a shim (node_guards.h). */
struct node_guard {
    uint64_t due_ms;   /* of the loop's clock: it is looked at then; 0: it needs none (yet) */
    uint64_t begun_ms; /* its newest start */
    uint32_t tries;    /* starts since one lasted */
    uint32_t misses;   /* looks that found none */
    bool is_told;      /* a log line says that it has ended, or could not be started */
    struct file_work *starting; /* NULL: none */
    struct node_child *child;   /* spared by sweeps; NULL: none */
    int page_fd;                /* of the page, which it locks; owned; -1: not found yet */
};

/* Lives from LAUNCHER_SPAWN_SHIM or adoption until LAUNCHER_REMOVE, and until its handles are
 * closed. */
struct node_shim {
    struct node_shims *shims;
    struct node_shim *next;
    uint64_t job_id;
    uint32_t generation;
    int64_t submitted_ms; /* of its job; 0: not said */
    char cluster[33];
    char dir[PATH_MAX]; /* its run directory */
    struct conn conn;
    bool conn_open, hello_received;
    bool is_other_build, is_told_build; /* its messages are others, and a log line says so */
    pid_t pid;                          /* 0: none */
    bool is_child;
    int pidfd; /* of an adopted one; else -1 */
    uv_poll_t pidfd_poll;
    bool poll_open;
    bool exited;        /* its process is gone or was never started */
    bool exit_reported; /* SHIM_EXITED was given to the core */
    bool reported;      /* the core has got SHIM_GONE or SHIM_FAILED; it is swept until then */
    bool removed;
    struct file_work *starting;   /* its process is started by this, or after it; NULL: none */
    struct node_child *child;     /* its process, until `pid` is known; NULL: none */
    bool is_given_up;             /* its start has failed (`how`), and `child` is not over yet */
    struct file_work *connecting; /* NULL: none */
    struct file_work *sweeping;   /* NULL: none */
    struct node_guard guard;
    struct lease_page *page;      /* owned; NULL: not found yet */
    bool is_silent;               /* it was logged that its run directory cannot be read */
    bool was_warm;                /* a warm process has become this shim */
    char doing[DOING_READ_BYTES]; /* what it did when it was killed from here, process/doing.h */
    char how[256];                /* how it ended */
    uint64_t age_us;              /* adopted after its end: how long ago, at most, that was */
    uint32_t rank_base, rank_count;
    pid_t pids[SLOTS_PER_NODE_MAX]; /* of its ranks, from its newest report; 0: not running */
};

struct node_warm;

struct node_shims {
    const struct node_host *host;
    struct node_warm *warm;  /* warm processes; NULL: not supported */
    struct node_shim *first; /* owned */
    uv_timer_t sweep_timer, guard_timer;
    uint32_t sweeps; /* since the last shim exited */
};

void node_shims_init(struct node_shims *shims, const struct node_host *host);
/* Closes all connections and watches; the shims live on. The loop must run once more. */
void node_shims_close(struct node_shims *shims);
void node_shims_free(struct node_shims *shims);

/* A new entry; nothing is started. NULL: no memory. Frees removed ones, so it must not be called
 * from a callback of a shim; node_shim_add may be. */
struct node_shim *node_shim_new(struct node_shims *shims, const struct msg_start *start);
struct node_shim *node_shim_add(struct node_shims *shims, const struct msg_start *start);
/* NULL: not known. */
struct node_shim *node_shim_find(const struct node_shims *shims, uint64_t job_id,
                                 uint32_t generation);
/* The process of a rank; 0: it is not running. */
pid_t node_shim_rank_pid(const struct node_shim *shim, uint32_t rank);
/* An event of this shim; `msg` and `text` are to be filled in. */
struct launcher_event node_shim_event(const struct node_shim *shim, enum launcher_event_type type);
struct log_about node_shim_about(const struct node_shim *shim);
void node_shim_close_poll(struct node_shim *shim);

/* Its connection is `fd`, which is closed on failure. */
bool node_shim_open(struct node_shim *shim, int fd);
/* Removes its run directory, on a thread. */
void node_shim_remove_dir(const struct node_shim *shim);

/* These carry out the actions of core/launcher.h. */
void node_shim_connect(struct node_shims *shims, uint64_t job_id, uint32_t generation);
void node_shim_send(struct node_shims *shims, uint64_t job_id, uint32_t generation,
                    const struct msg *msg);
/* Passes input for a rank to its shim. The shim's answer goes to the server. */
void node_shim_input(struct node_shims *shims, const struct msg *msg);
void node_shim_remove(struct node_shims *shims, uint64_t job_id, uint32_t generation);

#endif
