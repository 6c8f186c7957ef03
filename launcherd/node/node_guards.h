/* The guards of the shims (shim/guard.h). One is started for a shim whose ranks run, a moment later, so that it takes
 * no time from their start; a job that is shorter has none. An adopted shim gets another one, which goes at once if the
 * first is there. The page with the lease comes with it. */
#ifndef LAUNCHERD_NODE_NODE_GUARDS_H
#define LAUNCHERD_NODE_NODE_GUARDS_H

#include "launcherd/node/node_shims.h"

void node_guards_init(struct node_shims *shims);
/* Starts none any more; those that run go with their shims. */
void node_guards_close(struct node_shims *shims);
/* The ranks of the shim run, or may run. A second call changes nothing. */
void node_guards_want(struct node_shim *shim);
/* The shim is removed. */
void node_guards_drop(struct node_shim *shim);

#endif
