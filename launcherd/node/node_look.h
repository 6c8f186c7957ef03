/* Answers whether a job hangs here (msg look): are its ranks idle, and where is each? All ranks are examined at
 * once, within LOOK_MS; what is not known by then is left out of the answer.
 *
 * The job is busy here if any single process below its shim uses more than 5 % of a processor over a second, or if
 * the GPU of one of its slots is utilized by more than 5 %. A thread of libuv's pool measures that. Stacks come from
 * node_inspect.h. */
#ifndef LAUNCHERD_NODE_NODE_LOOK_H
#define LAUNCHERD_NODE_NODE_LOOK_H

#include "launcherd/gpu/gpu_watch.h"
#include "launcherd/node/node_inspect.h"

enum { LOOK_MS = 9000, LOOKS_MAX = 16 };

struct look; /* one question that has not been answered yet */

struct node_look {
    const struct node_host *host;
    struct node_inspect *inspect;
    struct gpu_watch *watch; /* borrowed; NULL: none */
    struct look *first;
    uint32_t count;
};

void node_look_init(struct node_look *looks, const struct node_host *host,
                    struct node_inspect *inspect, struct gpu_watch *watch);
void node_look_ask(struct node_look *looks, const struct msg_look *ask);
/* Call before node_inspect_close. The loop must run once more. */
void node_look_close(struct node_look *looks);

#endif
