/* The client's side of one framed connection, with or without TLS, on a non-blocking socket. For
 * tools that hold thousands of connections or send what common/io/conn refuses to send. No loop:
 * the owner polls `fd`. */
#ifndef TESTS_LIB_CALLER_H
#define TESTS_LIB_CALLER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "common/buf.h"
#include "common/io/tls.h"
#include "common/msg.h"
#include "common/status.h"

/* A server's address. */
struct caller_place {
    struct sockaddr_storage address;
    socklen_t byte_count;
};

struct caller {
    int fd;                 /* -1: closed */
    struct tls *tls;        /* NULL: plain */
    struct buf wire, plain; /* still to be sent; received, from the first byte of a frame */
    size_t sent;            /* of `wire` */
};

/* "unix:PATH", "HOST:PORT" (a name or an address). */
enum status caller_find(const char *address, struct caller_place *place, struct err *err);
/* Connects (blocks for that) and begins the handshake. `context` NULL: plain. */
enum status caller_open(struct caller *caller, const struct caller_place *place,
                        struct tls_context *context, struct err *err);
void caller_close(struct caller *caller);

/* True when messages and bytes may be sent. */
bool caller_is_ready(const struct caller *caller);
/* True while part of `wire` is unsent and waits for poll's POLLOUT. */
bool caller_is_full(const struct caller *caller);
/* Reads the available data. STATUS_CLOSED: the end. */
enum status caller_receive(struct caller *caller, struct err *err);
/* The next whole frame's payload, valid until caller_drop(its size). */
bool caller_next(const struct caller *caller, const char **json, size_t *byte_count);
void caller_drop(struct caller *caller, size_t byte_count);
/* These queue data and write as much as the socket takes. STATUS_CLOSED: the end. */
enum status caller_send(struct caller *caller, const struct msg *msg, struct err *err);
enum status caller_send_bytes(struct caller *caller, const void *bytes, size_t byte_count,
                              struct err *err);
enum status caller_flush(struct caller *caller, struct err *err);

#endif
