/* What was found, in words; on the loop. */
#include "common/log.h"
#include "launcherd/node/state_id.h"

void state_id_log(enum state_id_found found, struct log_about about, const char *state_dir,
                  const char *aside)
{
    if (found == STATE_ID_DAMAGED)
        log_line(LOG_WARNING, about,
                 "%s/state-id.json was damaged, and is kept as state-id.json.damaged, with a "
                 "number if there was one: the state directory has a new id, and the server waits "
                 "for the leases of the "
                 "old one",
                 state_dir);
    else if (found == STATE_ID_RESTORED)
        log_line(
            LOG_WARNING, about,
            "%s/state-id.json was removed or damaged: the id is taken from the record of parts",
            state_dir);
    else if (found == STATE_ID_NO_RECORD)
        log_line(
            LOG_WARNING, about,
            "%s/parts, the record of the parts that were started, was removed or is another's: "
            "parts may run that are not known here. The state directory has a new id, and the "
            "server waits for the leases of the old one",
            state_dir);
    else if (found == STATE_ID_COPY)
        log_line(LOG_WARNING, about,
                 "%s was not made where it is now: it is a copy of another state directory, was "
                 "moved here from another file system, or was restored from a backup. It has a new "
                 "id%s%s%s",
                 state_dir,
                 aside[0] != '\0' ? ". The shims that it lists are not taken over: they are "
                                    "in "
                                  : "",
                 aside,
                 aside[0] != '\0' ? ", and what still runs of them ends with its lease" : "");
}
