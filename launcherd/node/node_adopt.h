/* The shims that are there when launcherd starts, found by their run directories; and what is left of processes that
 * waited for a start order, which is killed. */
#ifndef LAUNCHERD_NODE_NODE_ADOPT_H
#define LAUNCHERD_NODE_NODE_ADOPT_H

#include "launcherd/node/node_shims.h"

/* Passes an ADOPT to the core for each of them. A run directory without an order is removed. */
void node_adopt(struct node_shims *shims);

#endif
