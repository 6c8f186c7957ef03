/* --nproc-per-node gpu, cpu or auto for a job on a server's nodes. */
#ifndef DDPCTL_NPROC_H
#define DDPCTL_NPROC_H

#include "ddpctl/ctl.h"

/* Whether the text is one of torchrun's words for what a machine has. */
bool nproc_is_word(const char *text);
/* Asks the server for its nodes and sets ctl->options.nproc_per_node to their number of GPUs (gpu),
 * to the slots of nodes without GPUs (cpu), or to the GPUs if there are any (auto). Returns an exit
 * code: an error was shown if there is no such node or if nodes differ. */
int nproc_of_nodes(struct ctl *ctl);

#endif
