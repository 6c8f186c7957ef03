/* The server's edge: turns connections into events, and actions into writes to the store, sends and timers. It
 * decides nothing about jobs and nodes; it knows who asks, how long requests wait, and what is durable.
 *
 * The happy path of a submit: a connection is accepted; client_hello -> client_welcome; submit -> is the request
 * id in the store? -> RDZV_EVENT_SUBMIT -> actions: all PERSIST and LOG_EVENT of the step in one transaction,
 * committed -> submitted to the client, start to the nodes.
 *
 * Failures:
 *   no hello within HELLO_TIMEOUT_US            closed
 *   over TLS, no key of a principal             closed
 *   a bad frame                                 error, closed (common/io/conn)
 *   a peer that reads too slowly                closed
 *   a node's connection is gone                 RDZV_EVENT_NODE_CLOSED
 *   a write to the store fails                  the process ends (store.h) */
#ifndef RENDEZVOUS_SERVER_SERVER_H
#define RENDEZVOUS_SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"

struct election;
struct server;
struct store_lead;
struct store_principal;

struct server_options {
    struct election *election;     /* one of several servers on etcd; NULL: the only one */
    const struct store_lead *lead; /* its store on etcd; NULL: in state_dir */
    bool stands_by; /* no store and no core: it refers nodes and clients to the leader */
    const char *state_dir;
    bool survives_power;     /* see store_open */
    const char *socket_path; /* "unix:..." is added here */
    bool socket_is_default;  /* nobody named it: if it is removed, another place will do */
    int socket_fd;           /* listens there already (listener_adopt); 0: none */
    bool is_for_all;         /* every user may connect; else root and the server's user */
    const char *listen;      /* HOST:PORT; NULL: only the unix socket */
    const char *advertise;   /* HOST:PORT for keys; NULL: derived from `listen` */
    bool requires_key;       /* also on loopback; other addresses always require one */
    uint32_t conns_max;      /* 2 to CONNS_MAX, within the limit for descriptors */
    bool preempts;           /* by priority */
    bool is_one_machine;     /* all nodes are on it, and no other ones come */
    uint64_t lease_us, suspect_us, lost_us, beat_interval_us, grow_us;
    uint64_t hang_us, hang_first_us; /* 0: the defaults of core/hang.h */
    bool waits_for_lease;            /* core/fence.h */
    uint64_t client_idle_us;         /* idle clients are closed after this; 0: never */
    uint64_t keep_jobs_us;           /* how long ended jobs stay in the store; 0: for ever */
    uint32_t max_slots_per_user, max_queued_per_user; /* 0: no limit */
    uint64_t max_stored_per_user;                     /* bytes; 0: no limit */
};

/* Opens the store, restores the core's jobs, and listens. `options` is borrowed for the call.
 * Errors: as store_open and listener_open; STATUS_BAD_INPUT, STATUS_REFUSED: an address in
 * `options`. If `*server` is not NULL after an error, it must be stopped and freed all the same. */
enum status server_open(struct server **server, uv_loop_t *loop,
                        const struct server_options *options, struct err *err);
/* The addresses that it listens on: "unix:/run/x.sock 127.0.0.1:41235". Valid as long as
 * `server`. */
const char *server_addresses(const struct server *server);
/* How other machines reach it: HOST:PORT, or "unix:PATH" without --listen. Valid as long as
 * `server`. */
const char *server_own_address(const struct server *server);
/* The TCP address that it listens on, with the actual port; "": none. */
const char *server_bound(const struct server *server);
bool server_stands_by(const struct server *server);
/* Between these two calls a standby is given the keys of peers that it may refer to the leader.
 * `are_read`: all of them were given, and take the place of the earlier ones. Else those stay. */
void server_keys_begin(struct server *server);
void server_keys_add(const struct store_principal *principal, void *server);
void server_keys_end(struct server *server, bool are_read);
/* For a standby whose election is opened after the server. */
void server_set_election(struct server *server, struct election *election);
/* For a standby: why no server will lead until an administrator acts; borrowed. Empty: no reason. */
void server_set_lost(struct server *server, const char *why);
/* For one that leads: a commit, soon, by which those that stand by know that they have what it has. */
void server_show_alive(struct server *server);
/* Stops listening and closes every connection and timer; then the loop ends. Jobs go on on their
 * nodes. */
void server_stop(struct server *server);
/* Call when the loop has ended. */
void server_free(struct server **server);

#endif
