/* The guards of the shims (shim/guard.h). One is started for a shim whose ranks run, a moment later, so that it takes
 * no time from their start; a job that is shorter has none. An adopted shim keeps the one that it has. Whether it is there
 * is looked at each second, by its lock on the page with the lease (lease_page.h), so it does not matter who has started
 * it; one that has ended is replaced. The page comes with the first start. */
#ifndef LAUNCHERD_NODE_NODE_GUARDS_H
#define LAUNCHERD_NODE_NODE_GUARDS_H

#include "launcherd/node/node_shims.h"

void node_guards_init(struct node_shims *shims);
/* Starts none any more; those that run go with their shims. */
void node_guards_close(struct node_shims *shims);
/* The ranks of the shim run, or may run. A second call changes nothing. */
void node_guards_want(struct node_shim *shim);
/* The shim is gone, and all that it has started: its guard ends by itself, or else (it was stopped) is killed. One
 * that an earlier launcherd has started is no child of this one, and is left. */
void node_guards_over(struct node_shim *shim);
/* The shim is removed, and its memory goes. */
void node_guards_free(struct node_shim *shim);

#endif
