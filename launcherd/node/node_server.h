/* The node's connection to its server: dialing, TLS with the node's key, error texts for people,
 * and the node's own address on that route. node.c owns it and passes its events to the core, which
 * decides when to connect and whether to go on. */
#ifndef LAUNCHERD_NODE_NODE_SERVER_H
#define LAUNCHERD_NODE_NODE_SERVER_H

#include <stdbool.h>

#include "common/io/conn.h"
#include "common/io/conn_dial.h"
#include "common/io/server_list.h"
#include "common/key.h"
#include "launcherd/node/node.h"
#include "launcherd/node/node_host.h"

#define NODE_BULK_BYTES_MAX (1u << 20) /* a quarter of CONN_QUEUE_BYTES_MAX */

struct node_server {
    const struct node_host *host;
    const struct node_options *options;
    struct server_list list; /* of options->server */
    struct tls_context *tls; /* owned; NULL: no key */
    bool uses_tls;           /* on the current connection */
    bool is_referred;        /* the connection is over, because that server is a standby */
    struct conn_dial dial;
    struct conn conn;
    bool is_open;                    /* `conn` is in use */
    bool is_welcomed;                /* on this connection */
    bool was_welcomed;               /* by this process, or by an earlier one that saved the key */
    bool is_failure_shown;           /* shown once until the next welcome */
    char address[ADDRESS_BYTES_MAX]; /* this node's, as the server sees it */
    char welcomed_at
        [SERVER_ADDRESS_BYTES_MAX]; /* the last server that took this node; empty: none yet */
    char why[512];                  /* the text of SERVER_CLOSED */
    bool is_keeping_key; /* from --join; on_key_kept follows, whether it is kept or not */
    bool is_key_lost;    /* it could not be kept */
    void (*on_key_kept)(void *owner);
    /* Called for each message of the server, with host->owner. */
    void (*on_message)(void *owner, const struct msg *msg);
    /* The same, when queued bytes may have left. */
    void (*on_room)(void *owner);
};

/* Zero it and set host, options, on_message and on_key_kept first. STATUS_LIBRARY: no TLS. */
enum status node_server_init(struct node_server *server, struct err *err);
/* Carries out CONNECT_SERVER: SERVER_OPEN or SERVER_CLOSED follows, as a posted event or from the
 * loop. */
void node_server_connect(struct node_server *server);
/* The server has accepted the hello: a key from --join is saved now, on a thread. */
void node_server_welcomed(struct node_server *server);
/* Beats, reports and orders have the queue almost to themselves: answers to people (log_data, node_data) leave without
 * their bytes when NODE_BULK_BYTES_MAX wait already, and are asked for again. */
void node_server_send(struct node_server *server, const struct msg *msg);
/* What is queued; 0 without a connection. */
size_t node_server_unsent(const struct node_server *server);
/* Also cancels a connect in progress. */
void node_server_close(struct node_server *server, enum status why, const char *text);
/* Call when the loop has ended. */
void node_server_free(struct node_server *server);

#endif
