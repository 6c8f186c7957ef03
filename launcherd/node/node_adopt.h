/* The shims that are there when launcherd starts, found by their run directories. */
#ifndef LAUNCHERD_NODE_NODE_ADOPT_H
#define LAUNCHERD_NODE_NODE_ADOPT_H

#include "launcherd/node/node_shims.h"

/* Gives an ADOPT to the core for each of them. A directory without an order is removed. */
void node_adopt(struct node_shims *shims);

#endif
