/* Shared between the files of the edge; nobody else includes it. */
#ifndef RENDEZVOUS_RDZV_IO_INTERNAL_H
#define RENDEZVOUS_RDZV_IO_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/io/conn.h"
#include "rendezvous/rdzv.h"
#include "rendezvous/rdzv_io.h"
#include "rendezvous/store.h"

#define PEERS_UNKNOWN_MAX 64u       /* connections that have not said who they are */
#define PEERS_MAX (CONNS_MAX + 64u) /* the last of them are told "full" and closed */
#define CLIENTS_MAX (CONNS_MAX - NODES_MAX - PEERS_UNKNOWN_MAX) /* nodes always find room */
#define WAITERS_MAX 4096u
#define WAITERS_PER_PEER_MAX 64u
#define NOTE_FLUSH_US 50000u     /* an event alone waits this long for its transaction */
#define LOG_ANSWER_US 10000000u  /* a node's time to answer, above the wait that was asked for */
#define VERSION_ENDED UINT64_MAX /* of a job that ended: above any other */

enum peer_kind { PEER_UNKNOWN, PEER_CLIENT, PEER_NODE, PEER_REFUSED };

/* One connection. Allocated here, freed in its on_closed. */
struct peer {
    struct conn conn;
    struct rdzv_io *io;
    uint64_t id; /* never used twice: a serial above, the index in io->peers below */
    enum peer_kind kind;
    bool is_closing;   /* conn_close was called: nothing more is sent or heard */
    bool is_core_node; /* the core knows this connection and must hear of its end */
    bool knows_user;   /* `user` is looked up */
    uint32_t uid;      /* who connected; over TCP the server's own */
    uint32_t waiter_count;
    char user[USER_NAME_BYTES_MAX];
    char name[NODE_NAME_BYTES_MAX]; /* of a node */
};

enum waiter_kind {
    WAIT_JOB,      /* for version > after of job_id */
    WAIT_EVENTS,   /* for an event with id > after */
    WAIT_LOG_RANK, /* for the rank to be somewhere */
    WAIT_LOG_NODE, /* for a node's log_data with forward_id */
};

/* A request that is not answered yet. */
struct waiter {
    enum waiter_kind kind;
    uint64_t peer_id, deadline_us;
    uint64_t job_id, after;
    uint32_t limit;
    struct msg_log_read log;
    uint64_t node_peer_id, forward_id;
};

struct rdzv_io {
    uv_loop_t *loop;
    struct store *store;
    struct rdzv *core;
    void *core_memory; /* mapped: pages that are never touched cost nothing */
    uint64_t core_bytes;
    struct rdzv_actions *actions;
    struct rdzv_options core_options;
    struct listener listeners[2];
    uint32_t listener_count;
    bool accept_waits[2]; /* a connection waits in the backlog for a free place */
    char addresses[8500];
    struct peer *peers[PEERS_MAX];
    uint32_t peer_count, unknown_count, client_count;
    uint64_t peer_serial, forward_serial;
    uint64_t version_base;  /* versions grow across restarts of the server */
    uint64_t seen_event_id; /* newest event that waiters were told about */
    struct waiter *waiters; /* [WAITERS_MAX] */
    uint32_t waiter_count;
    uv_timer_t tick_timer, flush_timer, wait_timer;
    struct arena arena;      /* of the answer at hand */
    struct arena spec_arena; /* `spec`, which is spec_job_id's, for the step at hand */
    struct store_spec spec;
    uint64_t spec_job_id; /* 0: none */
    bool is_stepping, is_stopping;
};

/* rdzv_io_peer.c */
struct peer *peer_find(const struct rdzv_io *io, uint64_t peer_id); /* NULL: gone or closing */
void peer_send(struct peer *peer, struct msg *msg);
void peer_close(struct peer *peer, enum status why, const char *text);
/* Send msg error. `code` as in msg.h; `hint` may be "". */
void peer_error(struct peer *peer, const char *code, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
struct store_viewer peer_viewer(const struct peer *peer);
const char *peer_user(struct peer *peer);

/* rdzv_io_step.c: one event through the core, its actions carried out. The times are set here. */
void io_step(struct rdzv_io *io, struct rdzv_event *event);
/* Commit notes that wait, tell those who follow events. */
void io_flush(struct rdzv_io *io);
/* rdzv_io_client.c: requests. */
void client_request(struct peer *peer, const struct msg *msg);
void client_send_job(struct peer *peer, uint64_t job_id);
/* Of all nodes, or of the one of that name (not empty), with all its slots. */
void client_send_nodes(struct peer *peer, bool with_lost, const char *name);
bool job_is_active(const struct rdzv_io *io, uint64_t job_id);

/* rdzv_io_wait.c: requests that wait, and logs. */
bool wait_add(struct peer *peer, const struct waiter *waiter); /* false: full, and said so */
void wait_job_changed(struct rdzv_io *io, uint64_t job_id);
void wait_events_changed(struct rdzv_io *io);
void wait_peer_gone(struct rdzv_io *io, const struct peer *peer);
void log_request(struct peer *peer, const struct msg_log_read *request);
void log_answer(struct peer *node, const struct msg_log_data *data);
/* Answer if there are events for it; with `now`, even if there are none. */
bool events_answer(struct peer *peer, uint64_t job_id, uint64_t after_id, uint32_t limit, bool now);

#endif
