/* log_read: the server asks for bytes of one rank's log, from an offset. A request that has all the
 * bytes there are waits here until there are more, the log is final, or its time is over. A log is
 * final once its generation has no process left on this node. */
#ifndef LAUNCHERD_NODE_NODE_LOGS_H
#define LAUNCHERD_NODE_NODE_LOGS_H

#include "launcherd/node/node_host.h"

struct log_wait; /* a waiting request */

struct node_logs {
    const struct node_host *host;
    struct log_wait *waits;
};

void node_logs_init(struct node_logs *logs, const struct node_host *host);
/* Answers `request` with log_data, now or later. */
void node_logs_read(struct node_logs *logs, const struct msg_log_read *request);
/* After each step of the core: answers the requests whose log has become final. */
void node_logs_check(struct node_logs *logs);
/* Drops all waiting requests; their handles are free once the loop has run. */
void node_logs_close(struct node_logs *logs);

#endif
