/* Shared between the files of this folder. */
#ifndef RENDEZVOUS_SERVER_INTERNAL_H
#define RENDEZVOUS_SERVER_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/io/conn.h"
#include "common/io/file_work.h"
#include "common/io/tls.h"
#include "rendezvous/core/crowd.h"
#include "rendezvous/core/rdzv.h"
#include "rendezvous/server/access.h"
#include "rendezvous/server/advertise.h"
#include "rendezvous/server/election.h"
#include "rendezvous/server/principals.h"
#include "rendezvous/server/refused.h"
#include "rendezvous/server/server.h"
#include "rendezvous/server/stage_uses.h"
#include "rendezvous/store/store.h"

#define ENDPOINTS_MAX 2u     /* the unix socket; TCP */
#define DOOR_PLACES_MAX 512u /* of connections without a hello, in each of two doors; see door.c */
#define PEERS_MAX (CONNS_MAX + 64u) /* those above CONNS_MAX get error `full`, and are closed */
#define CLIENTS_MAX                                                                                \
    (CONNS_MAX - NODES_MAX - 2 * ENDPOINTS_MAX * DOOR_PLACES_MAX) /* nodes always find room */
#define WAITERS_MAX 4096u
#define WAITERS_PER_PEER_MAX 64u
#define SUBMITTED_MAX 1024u      /* submits that share one transaction */
#define EVENT_FLUSH_US 50000u    /* an event without other writes is committed after this */
#define LOG_ANSWER_US 10000000u  /* a node's time to answer, beyond the wait that was asked for */
#define VERSION_ENDED UINT64_MAX /* version of an ended job: higher than any other */

#define TOLD_HELLOS_MAX 64u
#define TOLD_HELLO_US                                                                              \
    3600000000ull /* a refused hello is logged once in this time for each peer and reason */
#define REFUSED_LINES_MAX 10u       /* log lines about refused connections in each ... */
#define REFUSED_WINDOW_US 10000000u /* ... of this time */

#define NAMES_KNOWN_MAX 256u /* users whose names are kept */
#define NAMES_LOOKUPS_MAX 2u /* at a time, of the four threads of libuv */

enum peer_kind { PEER_UNKNOWN, PEER_CLIENT, PEER_NODE, PEER_REFUSED };

/* One connection. Allocated in listen.c, freed there in its on_closed. */
/* Of whose hello the log has said that it was refused, and for which reason. */
struct told_hello {
    uint8_t source[16];
    uint32_t uid;
    const char *reason; /* static */
    uint64_t at_us;
};

struct peer {
    struct conn conn;
    struct server *server;
    uint64_t id; /* never reused: a serial times PEERS_MAX, plus the index in server->peers */
    enum peer_kind kind;
    bool is_closing;    /* conn_close was called: nothing more is sent or read */
    bool is_core_node;  /* the core knows this connection: its close is an event */
    bool knows_user;    /* `user` is valid */
    bool is_submitting; /* one of its submits is not answered yet */
    struct endpoint *endpoint;
    uint32_t roles;            /* ACCESS_...; 0 until the first message */
    uint64_t principal_serial; /* the principal whose key it has proved; 0: none yet */
    uint32_t uid;              /* on a unix socket; otherwise see peer_uid */
    uint64_t names_since_us;   /* since when it has waited for its user's name; 0: it does not */
    bool is_told;              /* the log says why its hello was refused */
    bool is_held;              /* not read from until its answers are written; see backlog.c */
    uint64_t held_bytes;       /* of a client: conn_held_bytes */
    uint64_t closing_bytes;    /* the same, when it was closed for holding too much */
    uint64_t moved_us;         /* when it last took or gave bytes */
    int user_code;             /* errno if the lookup failed */
    uint64_t heard_us;         /* its last message, or when it last waited for an answer */
    uint32_t waiter_count;
    uint8_t source[16]; /* on TCP: its address, as IPv6 */
    char user[USER_NAME_BYTES_MAX];
    char name[NODE_NAME_BYTES_MAX]; /* of a node */
    struct stage_upload *upload;    /* the staged directory that it is sending; NULL: none */
    bool
        is_staging; /* of a client: not read from until a thread has done its request; see stage.c */
    uint64_t stage_bytes; /* what is held for that */
    uint32_t stage_gets;  /* of a node: reads that threads do */
    struct stage_reading
        *reading; /* of a node: the archive that it reads; NULL: none, or a thread has it */
};

enum waiter_kind {
    WAIT_JOB,       /* for version > after of job_id */
    WAIT_EVENTS,    /* for an event with id > after */
    WAIT_LOG_RANK,  /* for the rank to be placed on a node */
    WAIT_LOG_NODE,  /* for a node's log_data with forward_id */
    WAIT_INPUT,     /* for a shim's input_state with forward_id; `after`: the client's request_id */
    WAIT_NODE_DATA, /* for a node's node_data with forward_id; `after`: the client's request_id */
};

/* A request that is not answered yet. */
struct waiter {
    enum waiter_kind kind;
    uint64_t peer_id, deadline_us;
    uint64_t job_id, after;
    uint32_t limit, first_rank;
    struct msg_log_read log;
    uint64_t node_peer_id, forward_id;
};

/* A start order that could not be made. */
struct start_failure {
    uint64_t job_id;
    uint32_t generation, part;
    char text[REASON_BYTES_MAX];
};

/* The last known name of a uid. */
struct known_name {
    uint32_t uid;
    char name[USER_NAME_BYTES_MAX];
};

/* A submit whose job is written but may not be durable yet. */
struct submitted {
    uint64_t client, job_id;
};

/* Counts since the start of the server, for monitoring. */
struct server_counts {
    uint64_t submitted, succeeded, failed, cancelled;
};

/* Connections without a hello, the oldest first, and one above the limit. */
struct door {
    uint32_t count;
    bool is_over; /* nobody can make room for the last one yet */
    struct peer *peers[DOOR_PLACES_MAX + 1];
    struct crowd_place places[DOOR_PLACES_MAX + 1];
};

/* One address that the server listens on. */
struct endpoint {
    struct listener listener;
    struct server *server;
    bool uses_tls;
    bool is_started;              /* false: it waits for the first key */
    bool accept_waits;            /* a connection waits in the backlog for a free place */
    struct door strangers, known; /* those without a hello; see door.c */
};

struct server {
    uv_loop_t *loop;
    struct election *election; /* NULL: the only server */
    const char *lost;          /* server_set_lost; NULL: no reason */
    bool stands_by;            /* `store` and `core` are NULL */
    struct store *store;
    struct rdzv *core;
    void *core_memory; /* mapped: pages that are never touched cost nothing */
    uint64_t core_bytes;
    struct rdzv_actions *actions;
    struct rdzv_options core_options;
    struct endpoint endpoints[ENDPOINTS_MAX];
    uint32_t endpoint_count;
    uv_timer_t socket_timer;           /* socket_keep.c, as all of these: */
    struct socket_again *socket_again; /* NULL: the first is still there */
    struct socket_again *sockets_made; /* all of them, for their memory */
    struct stat socket_made;           /* at `socket_path` */
    char socket_path[PATH_MAX];
    int socket_mode;
    bool keeps_socket, socket_is_default, socket_is_missed;
    char addresses[8500];
    struct principals principals;
    struct principals new_principals; /* of a standby, while it reads them */
    int64_t keys_lost_ms;             /* store_keys_lost_ms */
    struct tls_context *tls;          /* NULL: no endpoint uses it */
    char advertise[ADVERTISE_BYTES];  /* HOST:PORT for keys */
    bool advertise_is_guess;          /* of the interfaces of now; keys may know better */
    uint64_t refused_since_us;        /* start of the log's window */
    uint32_t refused_lines, refused_omitted;
    struct told_hello told_hellos[TOLD_HELLOS_MAX]; /* the oldest is replaced */
    uint32_t told_hello_count;                      /* of all time */
    struct refused_nodes refused;
    struct peer *peers[PEERS_MAX];
    uint32_t conns_max; /* CONNS_MAX, or what the descriptor limit allows */
    uint32_t peer_count, client_count;
    uint64_t held_bytes, closing_bytes; /* of all clients: the sums of theirs */
    uint64_t peer_serial, forward_serial;
    uint64_t version_base;  /* versions grow across restarts of the server */
    uint64_t seen_event_id; /* newest event that was sent to waiters */
    struct waiter *waiters; /* [WAITERS_MAX] */
    uint32_t waiter_count;
    uv_timer_t tick_timer, flush_timer, wait_timer, key_timer, expire_timer, clients_timer,
        names_timer, lease_timer, alive_timer, door_timer;
    uint64_t keep_jobs_us, expire_after_id;
    uint64_t client_idle_us;
    uint32_t lookup_count, known_count;
    uint32_t lookup_uids[NAMES_LOOKUPS_MAX]; /* of the lookups that run */
    struct known_name known[NAMES_KNOWN_MAX];
    uint32_t expired_count;  /* removed by the current sweep */
    struct arena arena;      /* for the current answer */
    struct arena spec_arena; /* has `spec` of job spec_job_id, for the current step */
    struct store_spec spec;
    uint64_t spec_job_id;                           /* 0: none */
    struct msg_pair start_nodes[NODES_PER_JOB_MAX]; /* for the start order that is being sent */
    uint32_t start_failure_count;
    struct start_failure start_failures[RDZV_ACTIONS_MAX];
    uint32_t submitted_count;
    struct submitted submitted[SUBMITTED_MAX]; /* answered once they are durable */
    char stage_dir[4200];                      /* archives of staged working directories */
    uint64_t upload_serial;                    /* the newest upload of one */
    uint64_t stage_bytes;                      /* held for work on them */
    struct stage_uses stage_uses;              /* who has sent or named which, of late */
    struct err stage_err;                      /* why the folder cannot be used */
    bool stage_is_late;                        /* it was logged that its disk does not answer */
    struct file_works *files;                  /* NULL: it stands by */
    bool survives_power;                       /* see store_open */
    uint64_t stepped_at_us, tick_at_us;        /* the last step; the next tick, 0: none */
    struct look *looks;                        /* jobs that may hang, whose nodes were asked */
    bool is_stepping, is_stopping;
    uint64_t opened_at_us;
    struct server_counts counts;
};

/* warm.c: whether a spare on that node should be kept warm for the job whose spec is loaded. */
bool server_can_warm(const struct server *server);

/* Returns only if this server may act; otherwise the process restarts. A server may notice late
 * that it lost the lead, because it was stopped or a commit took long. So this is called before
 * each step of the core and before each message. etcd itself refuses writes of a server that no
 * longer leads (rendezvous/store). */
static inline void server_check_lead(const struct server *server)
{
    if (server->election != NULL && !server->stands_by)
        election_check(server->election);
}

/* backlog.c: what clients make the server hold; rendezvous/core/backlog.h decides. */
/* Call when what the connection holds may have changed. */
void backlog_moved(struct peer *peer);
void backlog_on_moved(struct conn *conn); /* the same, from the loop */
/* Its bytes are free. */
void backlog_gone(struct peer *peer);
/* Whether an answer to a request that has waited may be sent now. */
bool backlog_takes(struct peer *peer);
/* Before a request is handled. False: the user holds too much, and the client was told so. */
bool backlog_admits(struct peer *peer);

/* peer.c */
struct peer *peer_find(const struct server *server, uint64_t peer_id); /* NULL: gone or closing */
/* Errors: STATUS_CLOSED: the peer is closing; those of conn_send. They are logged here. */
enum status peer_try_send(struct peer *peer, struct msg *msg, struct err *err);
/* The same without a status. If the answer to a client cannot be encoded, it gets error
 * `internal`. */
void peer_send(struct peer *peer, struct msg *msg);
/* Whether what a user wants sent to this node may be queued: most of the queue is for orders. */
bool peer_takes_more(const struct peer *node);
void peer_close(struct peer *peer, enum status why, const char *text);
/* Logs that the hello of this connection is refused, once in TOLD_HELLO_US for each address (user, on a unix
 * socket) and reason. `reason`: static. The text says who, why, and what to do. */
__attribute__((format(printf, 3, 4))) void peer_log_hello(struct peer *peer, const char *reason,
                                                          const char *format, ...);
/* Logs how the connection ended. */
void peer_log_closed(const struct peer *peer, enum status why, const char *text);
/* Logs that a user's connection is closed at once, and why. The number of such lines is limited. */
void peer_log_dropped(const struct peer *peer, const char *text);
/* The same for two connections of one user. */
uint64_t peer_user_key(const struct peer *peer);
/* Send msg error. `code` as in msg.h; `hint` may be "". */
void peer_error(struct peer *peer, const char *code, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool peer_is_admin(const struct peer *peer);
/* The address of this machine on which it has called. "": a unix socket. */
void peer_called(const struct peer *peer, char out[ADDRESS_BYTES_MAX]);
struct store_viewer peer_viewer(struct peer *peer); /* borrows from `peer` */
/* Looks up the name of the peer's account. False: not possible now; `err` says why. */
bool peer_find_user(const struct peer *peer, struct err *err);
/* The name of the peer's account, which owns its jobs. */
const char *peer_user(struct peer *peer);
/* The uid of that account on this machine, for information; UINT32_MAX: none. */
uint32_t peer_uid(const struct peer *peer);

/* Layers: each file calls only those before it in this list: access, principals, peer and backlog, clients, names, stage,
 * answer, waiter, relay, input, look (which passes its answer to apply), apply, expire, keys, request, hello, door (which
 * tells listen when there is room). listen.c calls them all. */

/* standby.c: one of several servers. */
/* A connection's first message came to a standby: answers with the address of the leader, and
 * closes. */
void standby_refer(struct peer *peer, const struct msg *hello);
/* The addresses of this server and the others, for keys: HOST:PORT,... */
void standby_addresses(const struct server *server, char out[KEY_SERVERS_BYTES_MAX]);
/* The servers, the leader first; none if this server is the only one. Returns how many. */
uint32_t standby_list(const struct server *server, struct election_view *view,
                      struct part_server servers[SERVERS_MAX]);
/* clients.c: limits for the number of clients and for how long an idle one stays. */
/* Whether there is room for this client. False: it was told so, and is closed. */
bool clients_take(struct peer *peer);
/* From now on clients that are idle for that long are closed; 0: never. */
void clients_begin(struct server *server, uint64_t client_idle_us);

/* door.c: connections that have said no hello. */
void door_open(struct server *server);
/* It was accepted. Another one may be closed for it. False, on the unix socket only: none of its user's can be. */
bool door_enter(struct peer *peer);
/* Bytes have come from it. */
void door_moved(struct peer *peer);
/* It has said hello, or is gone. */
void door_leave(struct peer *peer);
/* Whether further ones may be accepted. */
bool door_is_open(const struct endpoint *endpoint);
/* listen.c: accepts what has waited in the backlog. */
void listen_again(struct server *server);
void listen_on_connection(struct listener *listener);
/* socket_keep.c: from now on makes the unix socket anew when its file was removed. Before the loop runs. */
void socket_keep_begin(struct server *server, const struct server_options *options);
void socket_keep_accept(struct server *server);
void socket_keep_stop(struct server *server);
void socket_keep_free(struct server *server);

/* names.c: the names of local users. */
void names_open(struct server *server);
/* Starts the lookup for a new connection without a key. Nothing is read from it until its uid and
 * `user` are known. */
void names_find(struct peer *peer);
/* Sets its uid as the kernel reports it. */
void names_uid(struct peer *peer);
void names_stop(struct server *server);

/* stage.c: archives of staged working directories. */
/* `waits`: an error if the folder cannot be used; else the log says so later. */
enum status stage_open(struct server *server, const char *state_dir, bool waits, struct err *err);
void stage_stop(struct server *server);
void stage_put(struct peer *peer, const struct msg_stage_put *put);
/* stage_get.c. `lost` is called when the archive is not there, or is damaged. */
typedef void stage_on_lost(struct server *server, uint64_t peer_id, const char *hash,
                           const char *why);
void stage_get(struct peer *peer, const struct msg_stage_get *get, stage_on_lost *lost);
/* stage_lost.c: tells the core. */
stage_on_lost stage_lost;
/* Drops what this connection has not sent or read to its end. */
void stage_drop(struct peer *peer);
/* Whether the submit needs more than is known of its working directory. True: it is answered, or goes on with
 * client_submit once a thread has found the archive. */
bool stage_takes_submit(struct peer *peer, const struct msg *submit);

/* answer.c: answers about jobs, nodes and events. */
bool job_is_active(const struct server *server, uint64_t job_id);
/* Includes one page of its ranks, from first_rank on. */
/* The store could not read the job, or there was no memory: the client asks again. */
void answer_unread(struct peer *peer, uint64_t job_id);
void answer_job(struct peer *peer, uint64_t job_id, uint32_t first_rank);
/* The stored failures of a job, and the failed ranks of one generation. */
void answer_why(struct peer *peer, uint64_t job_id, uint32_t generation);
/* A page of the list of nodes, with their closed slots: the nodes after that name. Those that are refused are always
 * in it. */
void answer_nodes(struct peer *peer, bool with_lost, const char *after, uint32_t limit);
/* Whether there is a node of that name, if only one that is refused. */
bool answer_has_node(const struct server *server, const char *name);
/* Such a node, with all its slots. */
void answer_node(struct peer *peer, const char *name);
/* The counts of this server, and the list of all servers. */
void answer_server(struct peer *peer, uint64_t request_id);
/* Answers if there are events for it; with `now`, even if there are none. True: it was answered. */
bool answer_events(struct peer *peer, uint64_t job_id, uint64_t after_id, uint32_t limit, bool now);
/* Tells the client why its node_read gets no answer. */
void answer_question_problem(struct peer *peer, uint64_t request_id, const char *problem);

/* Tells the client why its input did not reach the rank. The client may send it again. */
void answer_input_problem(struct peer *peer, uint64_t request_id, const char *problem);

/* waiter.c: requests that wait, and reading of logs. */
/* Finds the node on which that rank of the current generation runs. False: on none. */
bool wait_rank_node(const struct server *server, uint64_t job_id, uint32_t generation,
                    uint32_t rank, char node[NODE_NAME_BYTES_MAX]);
bool wait_add(struct peer *peer, const struct waiter *waiter,
              uint64_t timeout_us); /* false: full, and answered so */
void wait_job_changed(struct server *server, uint64_t job_id);
void wait_events_changed(struct server *server);
void wait_peer_gone(struct server *server, const struct peer *peer);
void log_request(struct peer *peer, const struct msg_log_read *request);
void log_answer(struct peer *node, const struct msg_log_data *data);
/* Takes the waiter of `kind` whose question was forwarded to this node under that id. False: there
 * is none. */
bool wait_take_forwarded(const struct peer *node, enum waiter_kind kind, uint64_t forward_id,
                         struct waiter *waiter);

/* relay.c: questions of clients to nodes. */
void relay_request(struct peer *peer, const struct msg_node_read *request);
void relay_answer(struct peer *node, const struct msg_node_data *data);

/* input.c: input for ranks. */
void input_request(struct peer *peer, const struct msg_input *request);
void input_answer(struct peer *node, const struct msg_input_state *state);

/* look.c: asks the nodes of a job whether its ranks are idle and where they are. `done` gets the
 * answer as an event. */
typedef void (*look_done)(struct server *server, struct rdzv_event *event);
void look_begin(struct server *server, const struct rdzv_action *action, look_done done);
void look_answer(const struct peer *node, const struct msg_looked *looked);
void look_stop(struct server *server);

/* apply.c: passes one event to the core and carries out the actions. Sets the event's times. */
void server_step(struct server *server, struct rdzv_event *event);

/* lease.c: at the start, after all was restored */
void server_keep_lease(struct server *server);
/* Until the longest lease that may be out is over, the state stays a copy (store_is_copy). */
void server_keep_copy(struct server *server);
/* A node has told a longer lease than was known: a server that starts before it is over must know it, too. Call in a transaction
 * of the store. */
void server_write_lease_before(struct server *server, uint64_t lease_us);

/* restore.c: at the start, before the jobs */
enum status server_restore_drains(struct server *server, struct err *err);
void server_restore_holds(struct server *server);
/* Commits pending writes: submits, which are then answered, and events, which are then sent to
 * those who follow them. */
void server_flush(struct server *server);

/* Commits soon, together with whatever else comes until then. */
void server_flush_soon(struct server *server);

/* keys.c: keys and the principals that have them. */
/* Reads the keys from the store. Call before endpoints are opened. */
void keys_open(struct server *server);
/* The state is one of the past: its keys are marked so, in the current transaction. */
void keys_lost(struct server *server);
/* An administrator has checked them. */
void keys_checked(struct server *server, const char *who);
void keys_close(struct server *server);
/* Opens an endpoint, or logs what one that uses TLS waits for. Loads OpenSSL for the first of these. Errors:
 * listener_start's, STATUS_LIBRARY, STATUS_MEMORY. */
enum status keys_start_endpoint(struct server *server, struct endpoint *endpoint, struct err *err);
/* Counts a connection for the principal whose key the peer has proved. NULL: the principal was
 * removed. The pointer is valid until the next principal is added or removed. */
const struct principal *keys_take_peer(struct peer *peer);
void keys_peer_gone(struct peer *peer);
void keys_request(struct peer *peer, const struct msg *msg);

/* alive.c: tells the store from now on that the server runs. */
void alive_begin(struct server *server);

/* expire.c: from now on removes jobs that ended at least `keep_jobs_us` ago; 0: never. */
void expire_begin(struct server *server, uint64_t keep_jobs_us);

/* request.c: the requests of clients. */
void client_request(struct peer *peer, const struct msg *msg);
/* A submit whose working directory is known to be there. */
void client_submit(struct peer *peer, const struct msg *msg);

/* hello.c: whether this connection may send this message. False: it was told so. */
bool peer_may_send(struct peer *peer, const struct msg *msg);
/* Handles a connection's first message. */
void peer_hello(struct peer *peer, const struct msg *msg);

#endif
