/* Horovod's rendezvous: an HTTP key-value store on the port of the c10d store, for `--env-style horovod`. The requests of
 * its Gloo controller are in horovod/common/gloo/http_store.cc, the expected answers in
 * horovod/runner/http/http_server.py (0.28):
 *
 *     PUT /SCOPE/KEY      with Content-Length and the value: 200
 *     GET /SCOPE/KEY      200 and the value; 404 while there is none: the client asks again
 *     DELETE /SCOPE/KEY   200. A rank no longer needs the scope. The scope is emptied when all its keys have been
 *                         deleted, so that a second hvd.init() finds it empty. Until then they can still be read
 *
 * http_server.py deletes keys at once in scopes that it was not told about; here they can still be read, as above.
 * http_server.py closes each connection after its answer; here a client may send several requests, until one says
 * that it is the last (RFC 9112, section 9.3: "Connection: close", or HTTP/1.0 without "keep-alive").
 *
 * Any other path is answered with 400; any other bytes end the connection. Private to the core. */
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
    struct text path, body; /* borrowed from the scanned text */
    bool is_last;           /* the connection is closed after the answer */
    size_t byte_count;      /* of the request */
};

/* Whether a client whose first byte this is speaks HTTP. Clients of c10d begin with 0. */
bool http_begins(char first);
/* Scans the request at the beginning of `text`. */
enum scan_result http_scan(struct text text, uint64_t message_bytes_max,
                           struct http_request *request, enum c10d_reason *reason);
/* Carries out the request and adds the answer to core->reply. False: *reason says why the client
 * must be closed. */
bool http_carry_out(struct c10d *core, const struct http_request *request,
                    enum c10d_reason *reason);

#endif
