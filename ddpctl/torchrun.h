/* torchrun's command lines: what its options and its PET_* variables mean to run and submit. Pure but
 * for the environment. docs/from-torchrun.md is the whole table. */
#ifndef DDPCTL_TORCHRUN_H
#define DDPCTL_TORCHRUN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "ddpctl/options.h"
#include "ddpctl/view.h"

/* The value of the PET_* variable that stands for the option of the variable DDP_*: PET_NNODES for
 * DDP_NODES. NULL: there is none, or it is not set. */
const char *torchrun_variable(const char *name);
/* What ddpctl has in place of an option that it accepts without effect; a clause that ends a
 * sentence. Never NULL. */
const char *torchrun_instead(const char *option);
/* --redirects, --tee, --local-ranks-filter, --node-rank, --run-path. `hidden`: what is not shown. STATUS_BAD_INPUT: a value that torchrun would refuse too, or a rank of a node that is not the
 * first: the job would be submitted once for each node. */
enum status torchrun_take(const struct options *options, uint32_t ranks_per_node,
                          struct view_hidden *hidden, struct err *err);

#endif
