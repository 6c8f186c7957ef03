/* How far a state.db has come, as this boot of the machine knows it: in a small file in memory, outside of the state
 * directory. Who puts back a copy of that directory, or moves another one to its place, does not put this back, so a state
 * that has come as far is the newest, if its server has run until a moment ago; a state that nothing is known of may be of
 * the past, and so may one that has come further, since that was not here.
 *
 * The file is state-CLUSTER in the folder boot-UID of $RUNTIME_DIRECTORY (systemd), or of /run/ddp where we may write, or of
 * ddp in $XDG_RUNTIME_DIR, if that is in memory, or in /dev/shm/ddp-boot-UID. It is written with each commit, by a store into mapped memory. */
#ifndef RENDEZVOUS_STORE_WITNESS_H
#define RENDEZVOUS_STORE_WITNESS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "rendezvous/store/seen.h"

struct witness;
struct witness_facts {
    char history[SEEN_ID_BYTES]; /* seen_id of the state */
    uint64_t commits;            /* of state.db, counted in it */
    uint64_t job_id, event_id;   /* the last ones that were given */
    uint64_t lease_us;           /* the longest that may be out */
    uint64_t alive_us;           /* clock_boot_us() when its server was last seen to run */
};
/* After a longer pause another server may have gone on with a copy of the state somewhere else, and have ended. A server that
 * is restarted or upgraded is back sooner. */
#define WITNESS_PAUSE_US 10000000u

/* Opens or makes the file of `cluster`, and removes those whose state.db is gone. `state_path`: the path of state.db.
 * STATUS_BUSY: another process has it open, and `err` says with which state. Other errors: STATUS_IO, STATUS_REFUSED (the folder is not ours): nothing is known then. */
enum status witness_open(struct witness **witness, const char *cluster, const char *state_path,
                         struct err *err);
/* False: nothing is known of this boot. */
bool witness_get(const struct witness *witness, struct witness_facts *facts);
void witness_set(struct witness *witness, const struct witness_facts *facts);
void witness_alive(struct witness *witness, uint64_t now_us);
void witness_close(struct witness **witness);

#endif
