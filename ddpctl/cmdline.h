/* Splits argv into a verb, its options and its words. */
#ifndef DDPCTL_CMDLINE_H
#define DDPCTL_CMDLINE_H

#include "ddpctl/commands.h"

/* Fills ctl->options, ->words, ->verb_name, ->is_attached. `*command`: the verb to run, or help if
 * that was requested. `words` has room for argc + 1 pointers; ctl->words uses it. Errors:
 * STATUS_BAD_INPUT, STATUS_NOT_FOUND, STATUS_TOO_BIG; ctl->is_attached then decides the exit
 * code. */
enum status cmdline_parse(struct ctl *ctl, int argc, char *const *argv, char **words,
                          const struct command **command, struct err *err);

#endif
