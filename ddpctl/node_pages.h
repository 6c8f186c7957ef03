/* The list of nodes: the pages of the server's answer in one. */
#ifndef DDPCTL_NODE_PAGES_H
#define DDPCTL_NODE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "ddpctl/ctl.h"

struct node_pages {
    struct arena arena; /* of the texts */
    struct part_node *nodes;
    struct part_slot *slots; /* that are closed */
    uint32_t node_count, slot_count;
    bool more;
};

/* Returns the exit code; `pages` is zeroed by the caller, and freed by node_pages_free. `with_lost`: lost
 * nodes too. */
int node_pages_read(struct ctl *ctl, bool with_lost, struct node_pages *pages);
void node_pages_free(struct node_pages *pages);

#endif
