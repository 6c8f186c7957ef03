/* Serves pages and metrics over HTTP, from a snapshot of the cluster that is read at most once a
 * second, however many readers there are. An edge: libmicrohttpd on the caller's libuv loop, one
 * thread.
 *
 *   http_route        what a request wants, and whether it is allowed
 *   http_pages, http_metrics, http_job   the answers
 *   http_conns        the connections, and how long they may last
 *   http_readers      reads single jobs from the server, a few at a time */
#ifndef DDPCTL_HTTP_SERVER_H
#define DDPCTL_HTTP_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"
#include "ddpctl/collect.h"
#include "ddpctl/http_conns.h"
#include "ddpctl/http_readers.h"
#include "ddpctl/http_route.h"
#include "ddpctl/microhttpd_library.h"

enum { HTTP_CACHED_MAX = 8 };

/* A page for many readers, made once. */
struct http_cached {
    enum http_what what;
    uint32_t page, refresh_s;
    bool openmetrics;
    uint64_t made_us; /* 0: this entry is free */
    struct MHD_Response *response;
};

struct http_server_options {
    uv_loop_t *loop;
    const struct server *server; /* the server that ddpctl uses */
    struct http_rules rules;
    int fd;                 /* a bound socket; we close it */
    bool is_local;          /* only this machine reaches it */
    const char *cert, *key; /* PEM texts for TLS; NULL: none */
    void *owner;
    /* The server cannot be used (it does not accept our key): call http_server_close. */
    void (*on_failed)(void *owner, const struct err *err);
};

struct http_server {
    struct http_server_options options;
    struct microhttpd_library mhd;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer, sweep;
    bool is_closed;
    struct collect collect;
    char lost_why[256]; /* empty: the server answers */
    struct http_conns conns;
    struct http_readers readers;
    struct http_cached cached[HTTP_CACHED_MAX];
    struct MHD_Response *style;
    uint64_t gauges_until_us; /* read gauges until then, because somebody has looked */
    uint32_t gauges_next;     /* the node that is asked next */
    uint32_t gauges_budget;   /* questions left in this second */
};

/* STATUS_LIBRARY (no libmicrohttpd), STATUS_SYSTEM, STATUS_UNSUPPORTED: `fd` is closed. */
enum status http_server_open(struct http_server *http, const struct http_server_options *options,
                             struct err *err);
/* Everything may be freed after the loop has ended. */
void http_server_close(struct http_server *http);
/* After the loop has ended. */
void http_server_free(struct http_server *http);

#endif
