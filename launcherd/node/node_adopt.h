/* When launcherd starts: finds the shims that are there by their run directories, and kills what is
 * left of warm processes. */
#ifndef LAUNCHERD_NODE_NODE_ADOPT_H
#define LAUNCHERD_NODE_NODE_ADOPT_H

#include "launcherd/node/node_shims.h"

/* Passes an ADOPT to the core for each of them. A run directory without an order is removed. Blocks;
 * STATUS_TIMEOUT: the disk of the state directory does not answer, so it is not known what runs here. */
enum status node_adopt(struct node_shims *shims, struct err *err);

#endif
