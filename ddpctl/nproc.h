/* --nproc-per-node gpu, cpu or auto with the nodes of a server. */
#ifndef DDPCTL_NPROC_H
#define DDPCTL_NPROC_H

#include "ddpctl/ctl.h"

/* Whether these words stand for what a machine has, as with torchrun. */
bool nproc_is_word(const char *text);
/* Asks the server for its nodes: the GPUs (gpu), the slots of nodes without GPUs (cpu), or the GPUs
 * where there are any (auto). They become the value of ctl->options.nproc_per_node. Returns an exit
 * code: an error was shown if there is no such node, or if nodes differ. */
int nproc_of_nodes(struct ctl *ctl);

#endif
