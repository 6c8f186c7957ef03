/* node_ask: questions of clients about this node. Each is answered once, with node_data. */
#ifndef LAUNCHERD_NODE_NODE_QUESTIONS_H
#define LAUNCHERD_NODE_NODE_QUESTIONS_H

#include "launcherd/node/node_gauges.h"
#include "launcherd/node/node_helpers.h"
#include "launcherd/node/node_host.h"

struct node_questions {
    const struct node_host *host;
    struct node_gauges gauges;
    struct node_helpers helpers;
};

/* `watch`: of this node's GPUs; NULL: none. */
void node_questions_open(struct node_questions *questions, const struct node_host *host,
                         struct gpu_watch *watch);
void node_questions_ask(struct node_questions *questions, const struct msg_node_ask *ask);
/* No answers come after this. May be called even if node_questions_open was not. */
void node_questions_close(struct node_questions *questions);
/* Call when the loop has ended. */
void node_questions_free(struct node_questions *questions);

#endif
