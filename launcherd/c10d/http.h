/* Horovod's rendezvous: an HTTP key-value store on the port of the c10d store, for `--env-style horovod`. What its Gloo
 * controller sends is in horovod/common/gloo/http_store.cc, what it expects in horovod/runner/http/http_server.py (0.28):
 *
 *     PUT /SCOPE/KEY      with Content-Length and the value: 200
 *     GET /SCOPE/KEY      200 and the value; 404 as long as there is none: the client asks again
 *     DELETE /SCOPE/KEY   200. A rank says so that it needs the scope no more; when all keys of the scope are deleted they are
 *                         gone, so that a second hvd.init() finds an empty one. Until then they are still read
 *
 * Any other path is answered with 400, any other bytes end the connection. Private to the core. */
#ifndef LAUNCHERD_C10D_HTTP_H
#define LAUNCHERD_C10D_HTTP_H

#include <stdbool.h>

#include "launcherd/c10d/scan.h"

#define HTTP_HEAD_BYTES_MAX 8192u
#define HTTP_PATH_BYTES_MAX 1024u

struct c10d;

enum http_method { HTTP_GET, HTTP_PUT, HTTP_DELETE };

struct http_request {
    enum http_method method;
    struct text path, body; /* in the text that was scanned */
    size_t byte_count;      /* of the request */
};

/* Whether a client that begins with this byte speaks HTTP. c10d's clients begin with 0. */
bool http_begins(char first);
/* `text` begins with a request. */
enum scan_result http_scan(struct text text, uint64_t message_bytes_max,
                           struct http_request *request, enum c10d_reason *reason);
/* Carries it out and adds the answer to core->reply. False: *reason says why the client must go. */
bool http_carry_out(struct c10d *core, const struct http_request *request,
                    enum c10d_reason *reason);

#endif
