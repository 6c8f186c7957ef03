/* Help, made from the tables of verbs and options. Pure. */
#ifndef DDPCTL_HELP_H
#define DDPCTL_HELP_H

#include <stdbool.h>
#include <stddef.h>

#include "common/buf.h"
#include "ddpctl/commands.h"

/* Help on everything (`topic` NULL), on a verb of `table` [count], or on exit-codes, environment or
 * json. False: there is no such topic. */
bool help_write(const struct command *table, size_t count, const char *topic, struct buf *out);

#endif
