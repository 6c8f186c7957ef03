/* The order in which `ddpctl top` lists jobs and nodes. Pure, apart from the heap. */
#ifndef DDPCTL_TOP_ORDER_H
#define DDPCTL_TOP_ORDER_H

#include "ddpctl/top_view.h"

/* Indices of the snapshot's jobs or nodes, in the order of `sort`; to be freed. NULL: no memory. */
uint32_t *top_order_new(const struct cluster *cluster, enum top_pane pane, uint32_t sort);

#endif
