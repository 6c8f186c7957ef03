/* The table of verbs, and help made from it. */
#ifndef DDPCTL_COMMANDS_H
#define DDPCTL_COMMANDS_H

#include <stddef.h>

#include "common/buf.h"
#include "ddpctl/ctl.h"

struct command {
    const char *name;
    enum verb verb;
    bool stops_at_word; /* what begins with the first word is a command, with options of its own */
    bool is_attached;
    const char *usage, *summary;
    const char *examples; /* lines, NULL: none */
    int (*run)(struct ctl *ctl);
};

extern const struct command commands[];
extern const size_t command_count;

/* NULL: no such verb. */
const struct command *command_find(const char *name);
/* The verb that was probably meant; NULL: none is near. */
const char *command_guess(const char *name);

/* Help of all, of a verb, or of a topic (exit-codes, environment, json). False: there is none on
 * that. */
bool help_write(const char *topic, struct buf *out);

#endif
