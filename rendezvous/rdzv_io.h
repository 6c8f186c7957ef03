/* The server's edge: connections to events, actions to the store, to sends and to timers. It
 * decides nothing about jobs and nodes; it knows who asks, how long they wait, and what is durable.
 *
 * The happy path of a submit: a connection is accepted; client_hello -> client_welcome; submit ->
 * is the request id in the store? -> RDZV_EVENT_SUBMIT -> actions: all PERSIST and EVENT_NOTE of
 * the step in one transaction, committed -> submitted to the client, start to the nodes. Failures:
 * no hello within HELLO_TIMEOUT_US: closed. A bad frame: error, closed (common/io/conn). A reader
 * too slow: closed. A node's connection gone: RDZV_EVENT_NODE_CLOSED. A write to the store fails:
 * the process ends (store.h). */
#ifndef RENDEZVOUS_RDZV_IO_H
#define RENDEZVOUS_RDZV_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"

struct rdzv_io;

struct rdzv_io_options {
    const char *state_dir;
    bool survives_power;     /* see store_open */
    const char *socket_path; /* "unix:..." is added here */
    const char *listen;      /* HOST:PORT, loopback; NULL: unix socket alone */
    uint64_t lease_us, suspect_us, lost_us, beat_interval_us;
};

/* Opens the store, gives the core its jobs back, listens. `options` is borrowed for the call.
 * Errors: as store_open and listener_open; `*io`, where it is not NULL, is to be stopped and freed
 * then too. */
enum status rdzv_io_open(struct rdzv_io **io, uv_loop_t *loop,
                         const struct rdzv_io_options *options, struct err *err);
/* "unix:/run/x.sock 127.0.0.1:41235": where it listens. The text lives as long as `io`. */
const char *rdzv_io_addresses(const struct rdzv_io *io);
/* Stop listening, close every connection and timer; the loop then runs out by itself. Jobs go on on
 * their nodes. */
void rdzv_io_stop(struct rdzv_io *io);
/* After the loop ran out. */
void rdzv_io_free(struct rdzv_io **io);

#endif
