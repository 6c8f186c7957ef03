/* --nproc-per-node: a number, or gpu, cpu or auto. */
#ifndef DDPCTL_NPROC_H
#define DDPCTL_NPROC_H

#include "ddpctl/ctl.h"
#include "ddpctl/spec.h"

/* Whether the text is one of torchrun's words for what a machine has. */
bool nproc_is_word(const char *text);
/* Asks the server for its nodes and sets ctl->options.nproc_per_node to their number of GPUs (gpu),
 * to the slots of nodes without GPUs (cpu), or to the GPUs if there are any (auto). Returns an exit
 * code: an error was shown if there is no such node or if nodes differ. */
int nproc_of_nodes(struct ctl *ctl);
/* Takes the option: a number; with --standalone also a word, for what this machine has. */
enum status nproc_take(struct spec *spec, const struct ctl *ctl, struct err *err);

#endif
