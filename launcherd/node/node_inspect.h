/* log_read for content that is made on request: the stack of a live rank, or the status of its generation's
 * store. A process of its own makes it (inspect/inspect.h), so that a hang there never blocks the loop. After
 * INSPECT_MS the process is killed; if the kernel keeps it, its place stays taken.
 *
 * Answers are kept for a while, because they are read in pages. The same question within a second gets the
 * same answer, so that nobody can make py-spy run without end. */
#ifndef LAUNCHERD_NODE_NODE_INSPECT_H
#define LAUNCHERD_NODE_NODE_INSPECT_H

#include "launcherd/node/node_shims.h"

enum {
    INSPECT_RUNS = 8,
    INSPECT_MS = 8000,          /* the server gives a node 10 s to answer */
    INSPECT_ANSWERS_KEPT = 8,   /* each is 1 MiB at most */
    INSPECT_SAME_MS = 1000,     /* the same question within this time gets the same answer */
    INSPECT_READ_ON_MS = 10000, /* how long the next page may be read after one was */
    INSPECT_WAITING_MAX = 256,
};

struct inspect_request; /* one waiting request */

/* Which question about which rank. */
struct inspect_key {
    uint64_t job_id;
    uint32_t generation, rank;
    enum log_kind what;
};

struct inspect_answer {
    struct inspect_key key;
    uint64_t made_ms, used_ms; /* on the loop's clock; 0: none */
    uint32_t byte_count;
    char *bytes; /* owned */
};

struct inspect_run {
    struct node_inspect *inspect;
    bool is_busy, is_late; /* is_late: it was answered, but its process does not end */
    uint32_t handles_open;
    struct inspect_key key;
    int output_fd, pidfd;       /* pidfd: -1: its process is not known (any more) */
    struct file_work *starting; /* on a thread; NULL: none */
    struct node_child *child;   /* its process, until `pidfd` is known or it is over; NULL: none */
    uv_poll_t poll;
    uv_timer_t timer;
};

struct node_inspect {
    const struct node_host *host;
    const struct node_shims *shims;
    struct inspect_request *waiting; /* owned; the oldest first */
    uint32_t waiting_count;
    struct inspect_run runs[INSPECT_RUNS];
    struct inspect_answer answers[INSPECT_ANSWERS_KEPT];
};

void node_inspect_init(struct node_inspect *inspect, const struct node_host *host,
                       const struct node_shims *shims);
/* Answers `request` with log_data, now or later. */
void node_inspect_read(struct node_inspect *inspect, const struct msg_log_read *request);
/* The same question about this node itself: one answer follows, possibly within this call, unless
 * node_inspect_close is called first. `json` is borrowed; NULL: `problem` says why there is
 * none. */
typedef void inspect_answered(void *owner, const char *json, size_t byte_count,
                              const char *problem);
void node_inspect_ask(struct node_inspect *inspect, const struct inspect_key *key,
                      inspect_answered *on_answer, void *owner);
/* Call when children were reaped: one whose start was given up may be gone. */
void node_inspect_check(struct node_inspect *inspect);
/* Drops all requests; the loop must run once more. */
void node_inspect_close(struct node_inspect *inspect);
/* Call after the loop has run. */
void node_inspect_free(struct node_inspect *inspect);

#endif
