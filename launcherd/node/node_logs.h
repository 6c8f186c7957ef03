/* log_read: the server asks for bytes of a rank's file (log, metrics, error file) from an offset.
 * If the request has reached the end of the file, it waits here until there is more, the log is
 * final, or its time is over. A log is final when its generation has no process left on this node.
 * Threads of libuv's pool read the files, so a slow disk delays only answers. */
#ifndef LAUNCHERD_NODE_NODE_LOGS_H
#define LAUNCHERD_NODE_NODE_LOGS_H

#include <limits.h>
#include <sys/types.h>

#include "launcherd/node/node_host.h"

struct log_wait; /* a request */

enum {
    NODE_LOGS_READERS = 2 /* threads of libuv's pool that a slow disk can hold up */
};

enum log_access {
    LOG_READABLE,
    LOG_MISSING,
    LOG_NEVER_WRITTEN, /* a rank that wrote no metrics or error file */
    LOG_FOREIGN,       /* metrics, error file: it is no plain file of the job's user */
};

/* The work of a thread for one request, and its result. */
struct log_reader {
    uv_work_t work;
    struct node_logs *logs;
    struct log_wait *wait; /* NULL: dropped meanwhile */
    struct msg_log_read request;
    char path[PATH_MAX];
    bool is_busy;
    enum log_access access;
    bool may_grow; /* determined before the size: the log of an ended rank no longer grows */
    uint64_t size, offset;
    ssize_t got;
    uint8_t bytes[LOG_CHUNK_BYTES_MAX];
    uint32_t run_count; /* runs of bytes: which are stderr, and when they came */
    struct part_log_run runs[LOG_RUNS_MAX];
};

struct node_logs {
    const struct node_host *host;
    struct log_wait *waits; /* the oldest first */
    struct log_reader readers[NODE_LOGS_READERS];
};

void node_logs_init(struct node_logs *logs, const struct node_host *host);
/* Answers `request` with log_data, now or later. */
void node_logs_read(struct node_logs *logs, const struct msg_log_read *request);
/* After each step of the core: answers the requests whose log has become final. */
void node_logs_check(struct node_logs *logs);
/* Drops all requests; their memory is freed by the loop. */
void node_logs_close(struct node_logs *logs);

#endif
