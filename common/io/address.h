/* Sockets by address: "unix:PATH" or "HOST:PORT", where HOST is a loopback address or localhost.
 * Blocking, but local. Every descriptor is close-on-exec and does not block. */
#ifndef COMMON_IO_ADDRESS_H
#define COMMON_IO_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "common/status.h"

#define ADDRESS_UNIX_PREFIX "unix:"

bool address_is_unix(const char *address);
/* "unix:PATH": PATH. */
const char *address_path(const char *address);

/* Resolve HOST:PORT ("[::1]:0", "localhost:7400"). STATUS_BAD_INPUT: not that form; STATUS_REFUSED:
 * not a loopback address
 * ("refusing to VERB ..."). */
enum status address_parse_tcp(const char *address, const char *verb,
                              struct sockaddr_storage *resolved, socklen_t *byte_count,
                              struct err *err);
/* "127.0.0.1:5000", "[::1]:5000" into `text` of `text_bytes`. */
void address_format_tcp(const struct sockaddr_storage *resolved, char *text, size_t text_bytes);

/* A connected socket. STATUS_NOT_FOUND, STATUS_REFUSED: nobody listens; STATUS_BUSY,
 * STATUS_TIMEOUT: who listens does not answer. */
enum status address_connect(const char *address, int *fd, struct err *err);
/* A listening socket. unix: `mode` is the file's; a stale socket file is replaced; `made` tells
 * which file was made. STATUS_BUSY: somebody listens there; STATUS_CONFLICT: something else is
 * there. */
enum status address_listen(const char *address, int mode, int *fd, struct stat *made,
                           struct err *err);

#endif
