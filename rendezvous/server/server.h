/* The server's edge: connections to events, actions to the store, to sends and to timers. It
 * decides nothing about jobs and nodes; it knows who asks, how long they wait, and what is durable.
 *
 * The happy path of a submit: a connection is accepted; client_hello -> client_welcome; submit ->
 * is the request id in the store? -> RDZV_EVENT_SUBMIT -> actions: all PERSIST and LOG_EVENT of
 * the step in one transaction, committed -> submitted to the client, start to the nodes. Failures:
 * no hello within HELLO_TIMEOUT_US: closed. Over TLS, no key of a principal: closed. A bad frame: error, closed (common/io/conn). A reader
 * too slow: closed. A node's connection gone: RDZV_EVENT_NODE_CLOSED. A write to the store fails:
 * the process ends (store.h). */
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
    bool stands_by; /* no store, no core: it refers nodes and clients to the server that leads */
    const char *state_dir;
    bool survives_power;     /* see store_open */
    const char *socket_path; /* "unix:..." is added here */
    bool is_for_all;         /* every user may connect to it; else only the server's and root */
    const char *listen;      /* HOST:PORT; NULL: unix socket alone */
    const char *advertise;   /* HOST:PORT of keys; NULL: found out from `listen` */
    bool requires_key;       /* on loopback too; other addresses always do */
    uint32_t conns_max;      /* 2 to CONNS_MAX, within the limit of descriptors */
    bool preempts;           /* by priority */
    uint64_t lease_us, suspect_us, lost_us, beat_interval_us, grow_us;
    uint64_t hang_us, hang_first_us; /* 0: the defaults of core/hang.h */
    bool waits_for_lease;            /* core/fence.h */
    uint64_t client_idle_us; /* a client that wants nothing for so long is closed; 0: never */
    uint64_t keep_jobs_us;   /* how long ended jobs stay in the store; 0: for ever */
    uint32_t max_slots_per_user, max_queued_per_user; /* 0: no limit */
};

/* Opens the store, gives the core its jobs back, listens. `options` is borrowed for the call.
 * Errors: as store_open and listener_open; STATUS_BAD_INPUT, STATUS_REFUSED: an address of `options`;
 * `*server`, where it is not NULL, is to be stopped and freed
 * then too. */
enum status server_open(struct server **server, uv_loop_t *loop,
                        const struct server_options *options, struct err *err);
/* "unix:/run/x.sock 127.0.0.1:41235": where it listens. The text lives as long as `server`. */
const char *server_addresses(const struct server *server);
/* How other machines reach it: HOST:PORT, or without --listen "unix:PATH". Lives as long as `server`. */
const char *server_own_address(const struct server *server);
/* Where it listens on TCP, with the port that it got; "": nowhere. */
const char *server_bound(const struct server *server);
bool server_stands_by(const struct server *server);
/* Between these two a standby is told which keys there are: those of peers that it may refer. */
void server_keys_begin(struct server *server);
void server_keys_add(const struct store_principal *principal, void *server);
void server_keys_end(struct server *server);
/* A standby has learned of its election later than it was opened. */
void server_set_election(struct server *server, struct election *election);
/* Stop listening, close every connection and timer; the loop then runs out by itself. Jobs go on on
 * their nodes. */
void server_stop(struct server *server);
/* After the loop ran out. */
void server_free(struct server **server);

#endif
