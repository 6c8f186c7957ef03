/* How much memory the clients of one user can make the server hold: answers that they do not read, and requests
 * that they do not finish. Pure.
 *
 * A connection whose last answer is not all with its peer's kernel is not read from, so it holds about one answer
 * and one request. The sum over the connections of one user has a limit; beyond it the slowest of them is closed.
 * Its memory is free only later in the same turn of the loop, so until then the user may hold twice as much, and
 * then gets no more answers. */
#ifndef RENDEZVOUS_CORE_BACKLOG_H
#define RENDEZVOUS_CORE_BACKLOG_H

#include <stdbool.h>
#include <stdint.h>

#define BACKLOG_USER_BYTES_MAX (64ull << 20)
/* If all users together hold more than this, each may hold only the smaller share. */
#define BACKLOG_ALL_BYTES_MAX (512ull << 20)
#define BACKLOG_SHARE_BYTES_MAX (8ull << 20)
#define BACKLOG_NONE UINT32_MAX

/* One client's connection. */
struct backlog_conn {
    uint64_t user; /* the same for all connections of one user */
    uint64_t bytes;
    uint64_t moved_us; /* when it last took or gave bytes */
    bool is_closing;   /* its memory is not free yet */
};

struct backlog_view {
    uint64_t user_bytes; /* of the connections that are not closing */
    uint32_t slowest;    /* to be closed, an index; BACKLOG_NONE: the user is within the limit */
    bool is_full;        /* with the closing ones it is twice the limit: no answers now */
};

/* Whether the next request of a connection waits, when so many bytes of its answers are not written yet. */
bool backlog_waits(uint64_t unsent_bytes);
/* `all_bytes`: what the connections of all users hold that are not closing. */
struct backlog_view backlog_look(const struct backlog_conn *conns, uint32_t count, uint64_t user,
                                 uint64_t all_bytes);

#endif
