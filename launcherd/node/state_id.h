/* The id of a state directory: random, made once, in STATE/state-id.json, and once more in the record of parts,
 * STATE/parts/id.json: a directory that has lost its record no longer knows what was started there, so it gets a new id. A copy must not pass as the
 * original, since it does not know the shims that were started from there later, and must not touch
 * those that it lists. So the file also says where it was made: its own inode number and device (a
 * copy of the file has another inode, also one from a backup; a renamed directory keeps it), the
 * boot and the machine.
 *
 *   {"version":1,"state_id":"...","inode":"...","device":"...","boot_id":"...","machine_id":"..."}
 *
 * The same directory: the same inode, and in one boot the same device, in another one the same
 * machine (devices are numbered anew in each boot). Where the machine's id is not known, another boot counts as the same
 * directory; whether its ranks are gone is another question (adopt_files.c). Anything else is a copy: it gets a new id, and
 * what it lists as run and warm is put aside. */
#ifndef LAUNCHERD_NODE_STATE_ID_H
#define LAUNCHERD_NODE_STATE_ID_H

#include "common/limits.h"
#include "common/log.h"
#include "common/status.h"

enum state_id_found {
    STATE_ID_KNOWN, /* the file is where it was made */
    STATE_ID_NEW,   /* there was none */
    STATE_ID_DAMAGED, /* one that cannot be understood was renamed to "...damaged"; `run` is used as it is */
    STATE_ID_RESTORED, /* there was none that can be understood; it was taken from the record of parts */
    STATE_ID_NO_RECORD, /* the record of parts is gone or is another's: a new id; `run` is used as it is */
    STATE_ID_COPY, /* it was made elsewhere: a copy, or moved from another file system; `run` was put aside */
};

/* Fills `id`, and makes a new one where it must. `aside`: for STATE_ID_COPY where the old folders are,
 * "run-of-copy-0123abcd"; empty if there was nothing in them. The caller has locked the directory.
 * Errors: STATUS_REFUSED: it is no plain file of ours, and left alone; STATUS_CONFLICT: too many damaged ones were kept before;
 * STATUS_IO, also if there is a file that cannot be read: then nobody knows whose it is. */
enum status state_id_load(const char *state_dir, const char *boot_id, const char *machine_id,
                          char id[IDENTITY_BYTES_MAX], enum state_id_found *found, char aside[64],
                          struct err *err);
/* Says what was found, if it was not as it should be. */
void state_id_log(enum state_id_found found, struct log_about about, const char *state_dir,
                  const char *aside);

#endif
