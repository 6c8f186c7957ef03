#include "ddpctl/http_conns.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "ddpctl/microhttpd_library.h"

#define SECOND_US 1000000u

/* How long each state may last. */
static const uint64_t limits_us[] = {
    [HTTP_CONN_ASKS] = 10 * SECOND_US,
    [HTTP_CONN_WAITS] = 20 * SECOND_US,
    [HTTP_CONN_ANSWERS] = 60 * SECOND_US,
};

struct http_conn *http_conns_add(struct http_conns *conns, struct MHD_Connection *connection,
                                 uint64_t now_us)
{
    const union MHD_ConnectionInfo *info =
        conns->mhd->get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_conn *conn = calloc(1, sizeof *conn);

    if (conn == NULL)
        return NULL;
    conn->connection = connection;
    conn->fd = info != NULL ? info->connect_fd : -1;
    conn->next = conns->first;
    conn->since_us = now_us;
    conns->first = conn;
    conns->count++;
    return conn;
}

void http_conns_remove(struct http_conns *conns, struct http_conn *conn)
{
    struct http_conn **at = &conns->first;

    while (*at != NULL && *at != conn)
        at = &(*at)->next;
    if (*at == NULL)
        return;
    *at = conn->next;
    conns->count--;
    free(conn);
}

void http_conn_enter(struct http_conn *conn, enum http_conn_state state, uint64_t now_us)
{
    conn->state = state;
    conn->since_us = now_us;
}

static void resume(const struct http_conns *conns, struct http_conn *conn, uint64_t now_us)
{
    http_conn_enter(conn, HTTP_CONN_ANSWERS, now_us);
    conns->mhd->resume_connection(conn->connection);
}

void http_conns_resume(struct http_conns *conns, uint64_t job_id, int64_t rank, uint64_t now_us)
{
    for (struct http_conn *conn = conns->first; conn != NULL; conn = conn->next)
        if (conn->state == HTTP_CONN_WAITS &&
            (job_id == 0 || (conn->job_id == job_id && conn->rank == rank))) {
            conn->is_late = job_id == 0;
            resume(conns, conn, now_us);
        }
}

bool http_conns_sweep(struct http_conns *conns, uint64_t now_us)
{
    bool is_resumed = false;

    for (struct http_conn *conn = conns->first; conn != NULL; conn = conn->next) {
        if (now_us < conn->since_us + limits_us[conn->state])
            continue;
        if (conn->state == HTTP_CONN_WAITS) {
            conn->is_late = true;
            resume(conns, conn, now_us);
            is_resumed = true;
        } else if (conn->fd >= 0) {
            (void)shutdown(conn->fd, SHUT_RDWR); /* libmicrohttpd sees this and closes the socket */
        }
    }
    return is_resumed;
}
