/* The connections of readers: libmicrohttpd ends those that say nothing, here end those that say something
 * every now and then but never all of it, and those that take an answer too slowly. */
#ifndef DDPCTL_HTTP_CONNS_H
#define DDPCTL_HTTP_CONNS_H

#include <stdbool.h>
#include <stdint.h>

struct MHD_Connection;

#define HTTP_CONNS_MAX 256u
#define HTTP_CONNS_PER_ADDRESS_MAX 32u /* of one address of the network */
#define HTTP_IDLE_S 10u                /* without a byte */

enum http_conn_state {
    HTTP_CONN_ASKS,    /* a request is expected, or came in part */
    HTTP_CONN_WAITS,   /* suspended: its job is being read */
    HTTP_CONN_ANSWERS, /* the answer is on its way */
};

struct http_conn {
    struct http_conn *next;
    struct MHD_Connection *connection;
    int fd;
    enum http_conn_state state;
    uint64_t since_us; /* of this state */
    uint64_t job_id;   /* HTTP_CONN_WAITS: for this job and rank */
    int64_t rank;
    bool is_late; /* it has waited too long */
};

struct http_conns {
    struct http_conn *first;
    uint32_t count;
};

/* NULL: no memory. */
struct http_conn *http_conns_add(struct http_conns *conns, struct MHD_Connection *connection,
                                 uint64_t now_us);
void http_conns_remove(struct http_conns *conns, struct http_conn *conn);
void http_conn_enter(struct http_conn *conn, enum http_conn_state state, uint64_t now_us);
/* Resumes those that wait for that job. 0: all that wait, as if for too long. */
void http_conns_resume(struct http_conns *conns, uint64_t job_id, int64_t rank, uint64_t now_us);
/* Ends what takes too long; resumes who has waited too long. True: somebody was resumed. */
bool http_conns_sweep(struct http_conns *conns, uint64_t now_us);

#endif
