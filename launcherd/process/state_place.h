/* The state directory of a launcherd that was given none.
 *
 * The home of a user may be on a file server, so the same on many machines, and a state directory is of one machine: its key is
 * of one node. So each machine has a folder of its own, host-NAME, in the usual place. An earlier version has used that place
 * itself. Its state stays where it is, with its jobs and logs, and belongs to one machine: that of its key or of its id, else
 * the first that starts there. The file `host` in it has that machine's name. */
#ifndef LAUNCHERD_PROCESS_STATE_PLACE_H
#define LAUNCHERD_PROCESS_STATE_PLACE_H

#include <limits.h>
#include <stdbool.h>

#include "common/status.h"

struct state_place_facts {
    const char *base;                        /* the usual place, absolute */
    const char *host, *machine_id, *boot_id; /* of this machine; the ids may be empty */
    bool joins; /* it was given a key, which would replace the one that is there */
};

struct state_place {
    char dir[PATH_MAX];
    char word[PATH_MAX]; /* for the log; empty: nothing to tell */
};

/* False: too long with what it has in it, or there is no current directory. */
bool state_place_absolute(const char *path, char out[PATH_MAX]);
/* STATUS_TOO_BIG: the path is too long. */
enum status state_place_find(const struct state_place_facts *facts, struct state_place *place,
                             struct err *err);
/* The directory that was given, else the one for this user on this machine, `host`. */
enum status state_place_choose(const char *given, const char *host, bool joins,
                               struct state_place *place, struct err *err);

#endif
