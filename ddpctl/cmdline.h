/* From argv to a verb with its options and words. */
#ifndef DDPCTL_CMDLINE_H
#define DDPCTL_CMDLINE_H

#include "ddpctl/commands.h"

/* Fills ctl->options, ->words, ->verb_name, ->is_attached; `*command` is what to run: help where it
 * was asked for. `words` has room for argc + 1 pointers and backs ctl->words. Errors in words:
 * STATUS_BAD_INPUT, STATUS_NOT_FOUND, STATUS_TOO_BIG; then ctl->is_attached tells whose exit codes
 * count. */
enum status cmdline_parse(struct ctl *ctl, int argc, char *const *argv, char **words,
                          const struct command **command, struct err *err);

#endif
