/* The connection of a node to its server: dialing, TLS with the node's key, what a failure means to
 * a person, and the node's own address on that way. node.c owns it and gives its events to the
 * core; when to connect and whether to go on is for the core to say. */
#ifndef LAUNCHERD_NODE_NODE_SERVER_H
#define LAUNCHERD_NODE_NODE_SERVER_H

#include <stdbool.h>

#include "common/io/conn.h"
#include "common/io/conn_dial.h"
#include "common/io/server_list.h"
#include "common/key.h"
#include "launcherd/node/node.h"
#include "launcherd/node/node_host.h"

struct node_server {
    const struct node_host *host;
    const struct node_options *options;
    struct server_list list; /* of options->server */
    struct tls_context *tls; /* owned; NULL: no key */
    bool uses_tls;           /* on the connection at hand */
    bool is_referred;        /* it is over: that server stands by */
    struct conn_dial dial;
    struct conn conn;
    bool is_open;          /* `conn` is in use */
    bool is_welcomed;      /* on this connection */
    bool was_welcomed;     /* once, by this process or (the key was kept) an earlier one */
    bool is_failure_shown; /* said once until the next welcome */
    char address[ADDRESS_BYTES_MAX]; /* of this node on the way to the server */
    char why[512];                   /* the text of SERVER_CLOSED */
    /* A message of the server; host->owner is its first argument. */
    void (*on_message)(void *owner, const struct msg *msg);
};

/* Zero it and set host, options and on_message first. STATUS_LIBRARY: no TLS. */
enum status node_server_init(struct node_server *server, struct err *err);
/* CONNECT_SERVER: SERVER_OPEN or SERVER_CLOSED follows, as a posted event or from the loop. */
void node_server_connect(struct node_server *server);
/* The server has taken the hello: the key, if it came with --join, is kept now. */
void node_server_welcomed(struct node_server *server);
void node_server_send(struct node_server *server, const struct msg *msg);
/* Also ends a connect that is under way. */
void node_server_close(struct node_server *server, enum status why, const char *text);
/* After the loop has run out. */
void node_server_free(struct node_server *server);

#endif
