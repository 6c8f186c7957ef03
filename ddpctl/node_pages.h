/* The list of nodes, put together from the pages of the server's answer. */
#ifndef DDPCTL_NODE_PAGES_H
#define DDPCTL_NODE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "ddpctl/ctl.h"

struct node_pages {
    struct arena arena; /* has the texts */
    struct part_node *nodes;
    struct part_slot *slots; /* closed ones */
    uint32_t node_count, slot_count;
    bool more;
};

/* Returns the exit code. `pages` must be zeroed; free it with node_pages_free. `with_lost`: also
 * lost nodes. */
int node_pages_read(struct ctl *ctl, bool with_lost, struct node_pages *pages);
void node_pages_free(struct node_pages *pages);

#endif
