/* Decides what a request for the HTTP pages wants and whether it is allowed: path, query, Host,
 * key. All input comes from strangers. Pure. */
#ifndef DDPCTL_HTTP_ROUTE_H
#define DDPCTL_HTTP_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

enum { HTTP_TOKEN_MIN = 16, HTTP_TOKEN_MAX = 512, HTTP_HOSTS_MAX = 16 };

enum http_what {
    HTTP_INDEX,
    HTTP_JOB,
    HTTP_STYLE,
    HTTP_METRICS,
    HTTP_HEALTH,
    HTTP_NOT_FOUND,
    HTTP_BAD_METHOD,
    HTTP_BAD_HOST,
    HTTP_BAD_QUERY,
    HTTP_NO_KEY,
};

/* Members are NULL if the request does not have them. `path` is decoded and without the query. */
struct http_request {
    const char *method, *path, *host, *authorization, *accept;
    const char *page, *rank, *refresh; /* of the query, decoded */
};
struct http_rules {
    const char *token;                 /* NULL: no key is required */
    const char *hosts[HTTP_HOSTS_MAX]; /* other host names of this server */
    uint32_t host_count;
};
struct http_route {
    enum http_what what;
    uint64_t job_id;    /* HTTP_JOB */
    int64_t rank;       /* whose log; -1: not given */
    uint32_t page;      /* which page of the list of nodes, from 1 */
    uint32_t refresh_s; /* 0: the page does not reload */
    bool has_refresh;
    bool openmetrics;
};

void http_route(const struct http_request *request, const struct http_rules *rules,
                struct http_route *route);
/* Compares in constant time. */
bool http_token_matches(const char *given, size_t given_bytes, const char *token);
/* The host of a Host header without its port: "[::1]:80" gives "::1". False: malformed. */
bool http_host_name(const char *header, char *name, size_t name_bytes);
/* One line of a key file: HTTP_TOKEN_MIN to HTTP_TOKEN_MAX - 1 printable characters. */
enum status http_token_parse(const char *text, size_t byte_count, char token[HTTP_TOKEN_MAX],
                             struct err *err);
/* "127.0.0.1", "::1", "localhost", "127.x.y.z". */
bool http_host_is_loopback(const char *host);

#endif
