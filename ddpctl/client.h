/* A connection to the server that reconnects: when it is lost, or the server says that it cannot
 * answer now (the error "later"), it tries again until there was no answer to a request for `patience_us`; a welcome is no answer. Of several servers it looks for the leader, for at least CLIENT_FAILOVER_US if one of
 * them is a standby. An edge on a libuv loop. It does not repeat requests; its owner does that in
 * on_open. */
#ifndef DDPCTL_CLIENT_H
#define DDPCTL_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/io/conn.h"
#include "common/io/conn_dial.h"
#include "common/io/server_list.h"
#include "ddpctl/server.h"

#define CLIENT_FAILOVER_US 20000000u /* the least patience while the lead moves to another server */

struct client;

struct client_handlers {
    void (*on_open)(struct client *client); /* connected, the hello is sent: send the requests, or
                                             * send them again */
    void (*on_message)(struct client *client, const struct msg *msg);
    void (*on_welcome)(struct client *client,
                       const struct msg_client_welcome *welcome); /* may be NULL */
    /* For 2 s no connection has lasted; still trying. Once for each loss. */
    void (*on_waiting)(struct client *client, const struct err *err);
    /* `patience_us` is over, or trying again cannot help. No other handler follows. STATUS_REFUSED:
     * the server requires a key and does not accept ours, or we have none. STATUS_BUSY: there are
     * several servers, and no leader could be reached. STATUS_TIMEOUT with the code EAGAIN: the queue of
     * connections of its unix socket is full, and was all the time. */
    void (*on_failed)(struct client *client, const struct err *err);
};

struct client {
    struct conn conn;
    struct conn_dial dial;
    uv_timer_t timer;
    const struct server *server; /* borrowed */
    const struct client_handlers *handlers;
    void *owner;
    uint64_t patience_us;  /* how long to try to reach a server that was reached before; 0: stop
                            * trying at once */
    bool first_is_patient; /* try as long for a server that was never reached */
    bool awaits_welcome; /* on_open comes after it: what is sent depends on the server's version */
    bool is_once;        /* requests must not be sent twice: try no longer than patience_us */
    struct server_list list;
    struct tls_context *tls; /* for the current attempt; borrowed */
    bool is_referred;        /* this connection is over, because the server is a standby */
    bool stands_by;          /* a server has been a standby since a leader was last connected */
    uint64_t lost_at_us;     /* the first loss since a request was answered; 0: none */
    uint64_t unsteady_at_us; /* the first loss since a connection has lasted; 0: none */
    uint64_t opened_at_us;   /* this connection; 0: there is none */
    uint64_t delay_ms;
    uint64_t expect_us, expect_at_us; /* client_expect, and when it was called */
    bool was_open, conn_live, open, closing, loss_reported;
    bool
        was_dropped; /* the server took a connection and closed it without a word: it had no place */
    bool was_full,
        is_full; /* the queue of its unix socket was full at some attempt, and at the last one */
    bool is_answered;                      /* the server has answered on this connection */
    bool is_useful;                        /* with more than its welcome */
    bool was_useful;                       /* is_useful before the current message */
    char leader[SERVER_ADDRESS_BYTES_MAX]; /* is_referred: the leader's address */
    char why_none[256];                    /* why it named none; empty: it did not say */
    struct err problem;                    /* why no server can be called at all */
    struct err why;
};

/* Starts to connect. Everything else comes through the handlers, from the loop. */
void client_open(struct client *client, uv_loop_t *loop, const struct server *server,
                 uint64_t patience_us, const struct client_handlers *handlers, void *owner);
/* Queues a message; does nothing while not connected. A message over its limits: as conn_send. */
enum status client_send(struct client *client, struct msg *msg, struct err *err);
/* Requires an answer within `timeout_us`; otherwise the connection counts as lost. 0: no answer is
 * expected. */
void client_expect(struct client *client, uint64_t timeout_us);
/* Only from on_message: the message answers no request of its owner, so it does not count as an answer. */
void client_was_unasked(struct client *client);
/* A second call does nothing. The struct may be freed once the loop has no handles left. */
void client_close(struct client *client);

#endif
