/* Command lines of PyTorch's ImageNet example, Apex and torchvision's references: their options that are not
 * ours. Private to worker/options*.c. */
#ifndef WORKER_OPTIONS_FOREIGN_H
#define WORKER_OPTIONS_FOREIGN_H

#include "common/status.h"
#include "worker/options.h"

/* Translates `argv` into our options: one that only has another name gets ours, one that the launcher or --resume
 * makes superfluous is left out.
 *   into   [2 * argc + 1], gets borrowed texts and a NULL at the end
 *   count  how many
 *   found  what was left out
 * Errors: STATUS_BAD_INPUT: an option that we do not have; the text says what to use. */
enum status options_translate(int argc, char *const *argv, char **into, int *count,
                              struct options_foreign *found, struct err *err);
/* torchvision's names of schedules in ours; any other name as it is. */
const char *options_schedule_name(const char *name);
/* The next sentence about options that were left out, as options_next_idle, `at` from 0. */
bool options_next_foreign(const struct options *options, uint32_t world, uint32_t *at,
                          char text[OPTIONS_IDLE_BYTES]);

#endif
