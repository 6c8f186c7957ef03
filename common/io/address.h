/* Sockets by address: "unix:PATH" or "HOST:PORT", where HOST is a loopback address or localhost.
 * These calls block, but only for local work. Every descriptor is close-on-exec and
 * non-blocking. */
#ifndef COMMON_IO_ADDRESS_H
#define COMMON_IO_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "common/status.h"

#define ADDRESS_UNIX_PREFIX "unix:"

bool address_is_unix(const char *address);
/* The PATH of an address "unix:PATH". */
const char *address_path(const char *address);

/* Splits "HOST:PORT" or "[HOST]:PORT"; `port` is in network order and may be 0. False: malformed
 * (an IPv6 address needs brackets), or HOST does not fit in `host_bytes` with its NUL. */
bool address_split_tcp(const char *address, char *host, size_t host_bytes, in_port_t *port);
/* Resolves HOST:PORT ("[::1]:0", "localhost:7400").
 *   STATUS_BAD_INPUT  not of that form
 *   STATUS_REFUSED    not a loopback address ("refusing to VERB ...") */
enum status address_parse_tcp(const char *address, const char *verb,
                              struct sockaddr_storage *resolved, socklen_t *byte_count,
                              struct err *err);
/* Whether HOST is localhost or a numeric loopback address, so that nobody outside this machine can
 * listen in. */
bool address_is_loopback(const char *address);
/* Whether it is a loopback address. */
bool address_is_local(const struct sockaddr_storage *resolved);
/* "127.0.0.1:5000", "[::1]:5000" into `text` of `text_bytes`. */
void address_format_tcp(const struct sockaddr_storage *resolved, char *text, size_t text_bytes);

/* A connected socket. After a failure `*fd` is no descriptor, here and in address_listen.
 *   STATUS_NOT_FOUND, STATUS_REFUSED  nobody listens
 *   STATUS_BUSY, STATUS_TIMEOUT       the listener does not answer */
enum status address_connect(const char *address, int *fd, struct err *err);
/* A socket to listen on. unix: it listens, the file gets `mode`, a stale socket file is replaced, and
 * `made` identifies the new file. TCP: it is bound and listens on the caller's order. HOST may be
 * any address or name of this machine; a name blocks for as long as the resolver takes. [::] takes IPv4, too.
 *   STATUS_BAD_INPUT  not of that form
 *   STATUS_NOT_FOUND  a name that has no address, or only a loopback address: at the start of a machine that may pass
 *   STATUS_BUSY       somebody listens there
 *   STATUS_CONFLICT   another kind of file is there, or a socket of another user */
enum status address_listen(const char *address, int mode, int *fd, struct stat *made,
                           struct err *err);
/* Removes the file if it still is the socket `made`. */
void address_remove_socket(const char *path, const struct stat *made);

#endif
