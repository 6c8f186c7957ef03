/* The table of verbs. */
#ifndef DDPCTL_COMMANDS_H
#define DDPCTL_COMMANDS_H

#include <stddef.h>

#include "ddpctl/ctl.h"

struct command {
    const char *name;
    enum verb verb;
    bool stops_at_word; /* the first word begins a command with options of its own */
    bool is_attached;
    const char *usage, *summary;
    const char *examples; /* lines, NULL: none */
    int (*run)(struct ctl *ctl);
};

extern const struct command commands[];
extern const size_t command_count;

/* NULL: no such verb. `name` may be a synonym: kill and stop mean cancel, list and ls mean ps. */
const struct command *command_find(const char *name);
/* For a verb that only other programs have: what to write instead, as a sentence.
 * NULL: not known. */
const char *command_advice(const char *name);
/* The verb that was probably meant; NULL: none is similar. */
const char *command_guess(const char *name);

#endif
