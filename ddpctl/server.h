/* Which server ddpctl talks to, and with which key. In this order: --server or DDP_SERVER, the server
 * of the key that `ddpctl login` kept, the default of
 * common/io/default_server.h. */
#ifndef DDPCTL_SERVER_H
#define DDPCTL_SERVER_H

#include <limits.h>
#include <stdbool.h>

#include "common/io/tls.h"
#include "common/key.h"
#include "common/status.h"

struct server {
    const char
        *address;    /* of the servers, as server_list.h reads it; borrowed, or here; never NULL */
    bool is_default; /* nobody named it */
    char socket[PATH_MAX];   /* the default address */
    struct key key;          /* where there is `tls` or `referred_tls` */
    struct tls_context *tls; /* owned; NULL: nobody is asked for a key there */
    /* Owned; without `tls`, with the key of `ddpctl login`, if there is one: for a server on the network that one of these
     * refers to. They are on this machine, so what they say is trusted, and whoever is there must have the key. */
    struct tls_context *referred_tls;
    /* Not STATUS_OK: why this server cannot be called. STATUS_REFUSED: we have no key for it. */
    struct err problem;
};

/* `named`: NULL, or the address that was named. */
void server_choose(struct server *server, const char *named);
/* This server with this key, which login tries. Errors as tls_client_new. */
enum status server_with_key(struct server *server, const struct key *key, struct err *err);
void server_free(struct server *server);

/* The file of `ddpctl login`. STATUS_NOT_FOUND: neither XDG_CONFIG_HOME nor HOME is set. */
enum status server_key_path(char path[PATH_MAX], struct err *err);

#endif
