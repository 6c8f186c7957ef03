/* TLS 1.3 with one external pre-shared key per principal (RFC 8446, sections 2.2 and 4.2.11), over
 * bytes that the caller moves: no socket, no loop, no thread of its own.
 *
 * Properties: both sides prove that they have the key (there are no certificates). Everything after
 * the first flight is encrypted. Each session has fresh keys (psk_dhe_ke only), so a key that leaks
 * later does not decrypt recorded sessions. A recorded session cannot be replayed (no early data,
 * no tickets). An eavesdropper sees the client's identity, sizes and times.
 *
 * Use: pass bytes from the socket to tls_receive, which appends the plain text to `plain` and what
 * must be sent to `wire`. Pass plain text to tls_send, which appends to `wire`. Each session begins
 * with tls_start. Any failure ends the session: send what is in `wire` (an alert), then close the
 * connection. */
#ifndef COMMON_IO_TLS_H
#define COMMON_IO_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/key.h"
#include "common/status.h"

struct tls_context; /* one for each listener, or for each key of a client; outlives its sessions */
struct tls;         /* one for each connection */

/* The keys of a server. Neither function may block. */
struct tls_keys {
    /* Finds the secret of an identity ("NAME:ID", [byte_count], not terminated, from an
     * unauthenticated peer). False: there is none; the peer cannot tell this from a wrong secret. */
    bool (*find)(void *user, const char *identity, size_t byte_count,
                 uint8_t secret[KEY_SECRET_BYTES]);
    /* Whether these are all keys of that identity (from an unauthenticated peer; empty: none was offered) that are
     * valid now. Only then is a peer told that its key is not accepted; else it is told to try later. */
    bool (*are_all)(void *user, const char *identity);
    void *user;
};

/* STATUS_LIBRARY: OpenSSL failed; `err` has its message. */
enum status tls_server_new(struct tls_context **context, const struct tls_keys *keys,
                           struct err *err);
/* Keeps a copy of the secret until tls_context_free. */
enum status tls_client_new(struct tls_context **context, const struct key *key, struct err *err);
void tls_context_free(struct tls_context **context);

enum status tls_new(struct tls **tls, struct tls_context *context, struct err *err);
void tls_free(struct tls **tls);

/* Writes a client's first flight. A server sends nothing yet. */
enum status tls_start(struct tls *tls, struct buf *wire, struct err *err);
/* Takes all of `bytes`. Errors: STATUS_REFUSED (the key is unknown or wrong, and the server knows all
 * keys; each side has its own error text), STATUS_BUSY (for a client: the server does not take the
 * key now and cannot say that it never will), STATUS_BAD_INPUT (not TLS 1.3, or damaged),
 * STATUS_TOO_BIG (a buf reached its limit), STATUS_LIBRARY. */
enum status tls_receive(struct tls *tls, const void *bytes, size_t byte_count, struct buf *plain,
                        struct buf *wire, struct err *err);
/* Only while tls_is_ready. Errors: STATUS_TOO_BIG (`wire` is at its limit), STATUS_LIBRARY. */
enum status tls_send(struct tls *tls, const void *bytes, size_t byte_count, struct buf *wire,
                     struct err *err);
/* Tells the peer that we send no more. Without this the peer takes the end of the stream for an
 * attack or a crash, and so does tls_is_closed on our side. */
void tls_end(struct tls *tls, struct buf *wire);

/* The handshake is over and the peer has proved its key. */
bool tls_is_ready(const struct tls *tls);
/* The peer has told us that it sends no more. */
bool tls_is_closed(const struct tls *tls);
/* For a server's session that is ready: the identity that the peer proved. Never NULL. */
const char *tls_identity(const struct tls *tls);
/* For a server's session: the identity whose key the client's first message shows, "" before. Others can send a recorded
 * one, so it counts for nothing but who is served first. */
const char *tls_offered(const struct tls *tls);

#endif
