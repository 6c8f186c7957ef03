/* torchrun's command lines: the meaning of its options and PET_* variables for run and submit.
 * Pure, apart from the environment. docs/from-torchrun.md has the whole table. */
#ifndef DDPCTL_TORCHRUN_H
#define DDPCTL_TORCHRUN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "ddpctl/options.h"
#include "ddpctl/view.h"

/* The value of the PET_* variable that corresponds to a DDP_* variable, such as PET_NNODES for
 * DDP_NODES. NULL: there is none, or it is not set. */
const char *torchrun_variable(const char *name);
/* What ddpctl offers instead of an option that it accepts without effect, as the last clause of a
 * sentence. Never NULL. */
const char *torchrun_instead(const char *option);
/* Handles --redirects, --tee, --local-ranks-filter, --node-rank, --run-path. `hidden`: output that
 * is not shown. STATUS_BAD_INPUT: a value that torchrun would refuse, too; or a node rank other
 * than 0, since the job would be submitted once for each node. */
enum status torchrun_take(const struct options *options, uint32_t ranks_per_node,
                          struct view_hidden *hidden, struct err *err);

/* Whose line it is. */
struct torchrun_line {
    const char *role, *host;
    uint32_t rank, local_rank;
};

/* What torchrun puts before a line. `template`: "${hostname}:${rank}: ", of its four macros; NULL:
 * "[default0]:". A longer one is cut. */
void torchrun_prefix(const char *template, const struct torchrun_line *line,
                     char prefix[VIEW_PREFIX_BYTES]);

/* --signals-to-handle: "SIGTERM,SIGUSR1" as a mask, without those that are handled in any case (INT, TERM, HUP,
 * QUIT). STATUS_BAD_INPUT. */
enum status torchrun_signals(const char *text, uint64_t *more, struct err *err);

#endif
