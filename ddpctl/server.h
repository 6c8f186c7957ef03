/* Which server ddpctl talks to, and with which key. In this order: --server or DDP_SERVER, the
 * server of the key that `ddpctl login` saved, the default (common/io/default_server.h). */
#ifndef DDPCTL_SERVER_H
#define DDPCTL_SERVER_H

#include <limits.h>
#include <stdbool.h>

#include "common/io/tls.h"
#include "common/key.h"
#include "common/status.h"

struct server {
    const char *address;   /* list of servers (server_list.h); borrowed, or `socket`; never NULL */
    bool is_default;       /* no address was given */
    char socket[PATH_MAX]; /* the default address */
    struct key key;        /* valid if `tls` or `referred_tls` is set */
    struct tls_context *tls; /* owned; NULL: no key is needed there */
    /* Owned; used if `tls` is NULL and `ddpctl login` saved a key: for a server on the network that
     * one of these servers refers to. The servers here are on this machine, so their referral is
     * trusted, and the server that they name must have the key. */
    struct tls_context *referred_tls;
    /* Not STATUS_OK: why this server cannot be called. STATUS_REFUSED: we have no key for it. */
    struct err problem;
};

/* `named`: the address that was given, or NULL. */
void server_choose(struct server *server, const char *named);
/* Uses this server with this key; `login` tries a new key with it. Errors as tls_client_new. */
enum status server_with_key(struct server *server, const struct key *key, struct err *err);
void server_free(struct server *server);

/* The path of the key file that `ddpctl login` writes. STATUS_NOT_FOUND: neither XDG_CONFIG_HOME
 * nor HOME is set. */
enum status server_key_path(char path[PATH_MAX], struct err *err);

#endif
