/* What a thread needs to start `launcherd MODE ...`: the loop describes it, child_files.h carries it out. */
#ifndef LAUNCHERD_NODE_CHILD_ORDER_H
#define LAUNCHERD_NODE_CHILD_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "launcherd/node/node_children.h"

/* Part of the work's struct. Zeroed before. */
struct child_order {
    struct node_child *child; /* a use of it */
    struct buf words;         /* the arguments, each with its NUL */
    uint32_t word_count;
    bool dies_with_parent; /* its thread then stays until launcherd ends */
};

/* `mode`: the first argument. */
void child_order_new(struct child_order *order, struct node_child *child, const char *mode);
/* Another argument, copied. */
void child_order_add(struct child_order *order, const char *word);
void child_order_drop(struct child_order *order);

#endif
