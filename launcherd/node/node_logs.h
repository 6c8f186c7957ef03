/* log_read: the server asks for bytes of a rank's file (log, metrics, error file) from an offset.
 * If the request has reached the end of the file, it waits here until there is more, the log is
 * final, or its time is over. A log is final when its generation has no process left on this node.
 * Few are read at a time, and none while the connection has much to send: further requests wait for their turn, a
 * user after the other, and of each a job after the other. So beats and reports never wait behind more than a moment's logs.
 * Threads read the files (log_files.h), so a slow disk delays only answers, and one that hangs is named in them. */
#ifndef LAUNCHERD_NODE_NODE_LOGS_H
#define LAUNCHERD_NODE_NODE_LOGS_H

#include <uv.h>

#include "launcherd/node/node_host.h"

struct log_wait; /* a request */
struct log_watches;

struct node_logs {
    const struct node_host *host;
    struct log_wait *waits;      /* the oldest first */
    struct log_watches *watches; /* NULL until the first request waits */
    uv_poll_t poll;
    uint32_t look_count;     /* made by threads now */
    uint8_t turn_user;       /* whose turn was last */
    uint64_t turn_jobs[256]; /* of each user: the job */
    bool is_turning;         /* node_logs_room runs */
};

/* Whether the folder of logs is outside of the state directory, where other launcherds may use it, too. */
bool node_logs_are_shared(const char *logs_dir, const char *state_dir);
void node_logs_init(struct node_logs *logs, const struct node_host *host);
/* Answers `request` with log_data, now or later. */
void node_logs_read(struct node_logs *logs, const struct msg_log_read *request);
/* After each step of the core: answers the requests whose log has become final. */
void node_logs_check(struct node_logs *logs);
/* Queued bytes may have left the connection to the server. */
void node_logs_room(struct node_logs *logs);
/* Drops all requests; their memory is freed by the loop. */
void node_logs_close(struct node_logs *logs);
/* Call when the loop has ended. */
void node_logs_free(struct node_logs *logs);

#endif
