/* What the parts of launcherd's edge share: node_io.c (server, core), node_shims.c (shims),
 * node_logs.c (log_read), node_gpu.c (GPUs). Private to them. */
#ifndef LAUNCHERD_NODE_STATE_H
#define LAUNCHERD_NODE_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/io/conn.h"
#include "launcherd/launcher.h"
#include "launcherd/node_io.h"
#include "launcherd/rundir.h"

/* A shim as a process and a connection. Lives from SPAWN_SHIM or adoption until REMOVE, and until
 * its handles are closed. */
struct node_shim {
    struct node *node;
    struct node_shim *next;
    uint64_t job_id;
    uint32_t generation;
    char cluster[33];
    char dir[PATH_MAX];
    struct conn conn;
    bool conn_open, said_hello;
    pid_t pid; /* 0: none */
    bool is_child;
    int pidfd; /* of an adopted one; else -1 */
    uv_poll_t pidfd_poll;
    bool poll_open;
    bool exited;    /* the process is gone; what it left is being swept until gone_said */
    bool gone_said; /* or it never was */
    bool removed;
    char how[96]; /* how it ended */
};

struct log_wait; /* node_logs.c */

struct node {
    struct node_options options;
    uv_loop_t *loop;
    uv_timer_t timer, sweep_timer, end_timer;
    uv_signal_t child_signal;
    struct conn server;
    bool server_open; /* the struct conn is in use */
    bool unreachable_said, ready_said;
    bool ending; /* no more orders; shims of a private run are being ended */
    bool closed;
    uint32_t sweeps;
    int lock_fd;
    struct node_shim *shims;
    struct log_wait *log_waits;
    uint32_t event_count, event_at; /* queued by actions, for after them */
    struct launcher_event events[4 * SHIMS_PER_NODE_MAX];
    char event_texts[SHIMS_PER_NODE_MAX][256];
    uint32_t event_text_count;
    struct launcher core;
    struct launcher_actions actions;
};

/* -- node_io.c */
/* One event from a callback, then all that its actions gave rise to. */
void node_step(struct node *node, struct launcher_event event);
/* An event from within an action. `event.text` is copied. */
void node_post(struct node *node, struct launcher_event event);
void node_send_server(struct node *node, const struct msg *msg);
void node_close(struct node *node);

/* -- node_shims.c */
struct node_shim *node_shim_find(const struct node *node, uint64_t job_id, uint32_t generation);
void node_shims_adopt(struct node *node);
void node_shim_spawn(struct node *node, const struct msg *start);
void node_shim_connect(struct node *node, uint64_t job_id, uint32_t generation);
void node_shim_send(struct node *node, uint64_t job_id, uint32_t generation, const struct msg *msg);
void node_shim_remove(struct node *node, uint64_t job_id, uint32_t generation);
/* On SIGCHLD. */
void node_shims_reap(struct node *node);
/* Look again for what dead shims left behind; steps SHIM_GONE for each that left nothing. */
void node_shims_sweep(struct node *node);
/* `signal` to every shim that lives; answers how many are not gone yet. */
uint32_t node_shims_signal(struct node *node, int signal);
uint32_t node_shims_left(const struct node *node);
/* Close all connections and watches; shims live on. */
void node_shims_close(struct node *node);
void node_shims_free(struct node *node);

/* -- node_gpu.c */
enum status node_gpu_open(struct node *node, struct err *err);
void node_gpu_ask(struct node *node, const struct launcher_action *action);
void node_gpu_keep(struct node *node, const struct msg *kept);

/* -- node_logs.c */
void node_log_read(struct node *node, const struct msg_log_read *request);
/* Something of this job may have ended: answer who waits for its logs. */
void node_logs_check(struct node *node);
void node_logs_close(struct node *node);

#endif
