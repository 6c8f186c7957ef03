/* Downloads by libcurl. It is loaded only when needed: it brings thirty libraries, and a training
 * should not wait for them. */
#ifndef WORKER_DATA_FETCH_HTTP_H
#define WORKER_DATA_FETCH_HTTP_H

#include <stdint.h>

#include "common/status.h"

struct http;

/* Errors: STATUS_LIBRARY. */
enum status http_open(struct http **http, struct err *err);
void http_close(struct http **http);

struct http_request {
    const char *url;     /* http or https; https redirects only to https */
    int fd;              /* the body is appended here */
    uint64_t from;       /* the first byte to download */
    uint64_t byte_limit; /* limit on the whole file's size */
    uint32_t timeout_s;  /* longest time without a byte */
};

/* Errors: STATUS_NOT_FOUND, STATUS_CONFLICT (the server does not send parts: `from` must be 0),
 * STATUS_REFUSED (another answer, too many redirects), STATUS_TIMEOUT, STATUS_CLOSED (cut off, no
 * connection), STATUS_TOO_BIG, STATUS_IO (cannot write), STATUS_LIBRARY. */
enum status http_get(struct http *http, const struct http_request *request, struct err *err);

#endif
