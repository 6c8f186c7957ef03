/* Limits the connections of readers. libmicrohttpd closes those that are silent. This part closes
 * those that send a request too slowly or receive an answer too slowly. */
#ifndef DDPCTL_HTTP_CONNS_H
#define DDPCTL_HTTP_CONNS_H

#include <stdbool.h>
#include <stdint.h>

struct MHD_Connection;
struct microhttpd_library;

#define HTTP_CONNS_MAX 256u
#define HTTP_CONNS_PER_ADDRESS_MAX 32u /* from one network address */
#define HTTP_IDLE_S 10u                /* time without a byte received or sent */

enum http_conn_state {
    HTTP_CONN_ASKS,    /* no request yet, or only a part of one */
    HTTP_CONN_WAITS,   /* suspended: its job is being read */
    HTTP_CONN_ANSWERS, /* the answer is being sent */
};

struct http_conn {
    struct http_conn *next;
    struct MHD_Connection *connection;
    int fd;
    enum http_conn_state state;
    uint64_t since_us; /* since when it has been in this state */
    uint64_t job_id;   /* HTTP_CONN_WAITS: it waits for this job and rank */
    int64_t rank;
    bool is_late; /* it has waited too long */
};

struct http_conns {
    const struct microhttpd_library *mhd;
    struct http_conn *first;
    uint32_t count;
};

/* NULL: no memory. */
struct http_conn *http_conns_add(struct http_conns *conns, struct MHD_Connection *connection,
                                 uint64_t now_us);
void http_conns_remove(struct http_conns *conns, struct http_conn *conn);
void http_conn_enter(struct http_conn *conn, enum http_conn_state state, uint64_t now_us);
/* Resumes the connections that wait for that job and rank. job_id 0: resumes all that wait, as if
 * they had waited too long. */
void http_conns_resume(struct http_conns *conns, uint64_t job_id, int64_t rank, uint64_t now_us);
/* Closes connections that are too slow and resumes those that have waited too long. True: some were
 * resumed. */
bool http_conns_sweep(struct http_conns *conns, uint64_t now_us);

#endif
