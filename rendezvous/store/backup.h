/* A state as one file, from either kind of store to either kind.
 *
 * The file: "ddp-backup 1\n", then parts, each a letter, the number of its bytes, and these:
 *   H  what it is a backup of: "schema=8 moved=0 made_ms=... cluster=... version=..."
 *   T  a table: "NAME COLUMN,COLUMN,..."; the rows behind it are of this table
 *   R  a row (rows.h), with layout 1
 *   E  how many rows there are
 * and the SHA-256 of all of it. Keys are in it: its mode is 0600.
 *
 * Two uses. A copy of a live state is of the past when it is restored: what was done since is not known. So the
 * restored state gets a new cluster id, by which nodes keep its jobs apart from what ran before, and its
 * numbers of jobs and events begin above any that were given meanwhile. A state that was moved is the newest:
 * nobody may use the old one any more (it refuses), and the restored one is the same, to the last number. */
#ifndef RENDEZVOUS_STORE_BACKUP_H
#define RENDEZVOUS_STORE_BACKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "rendezvous/store/store.h"

#define BACKUP_ID_GAP 10000u /* numbers of jobs and events that a restored copy leaves out */

struct backup_facts {
    int64_t made_ms;
    char cluster[33];
    bool is_moved;
    uint64_t job_count, row_count;
};

/* A state of a running server may be read too, as it is at one moment. The file must not be there yet. Errors:
 * STATUS_CONFLICT: it is; STATUS_NOT_FOUND: no state is there; STATUS_UNSUPPORTED: of another version. */
enum status backup_dir(const char *dir, const char *path, int64_t now_ms,
                       struct backup_facts *facts, struct err *err);
/* Jobs in the state of DIR, which nobody has moved away. 0: there is none, or it cannot be read. */
uint64_t backup_jobs_left(const char *dir);
enum status backup_etcd(struct etcd_client *client, const char *prefix, const char *path,
                        int64_t now_ms, struct backup_facts *facts, struct err *err);
/* Of a store that is open, which is unusable afterwards: it was moved. */
enum status backup_move(struct store *store, const char *path, int64_t now_ms,
                        struct backup_facts *facts, struct err *err);

/* Into a store that is new. The whole file is checked before anything is written. Errors: STATUS_CONFLICT: the
 * store has jobs, events or keys already; STATUS_BAD_INPUT: the file is damaged or no backup;
 * STATUS_UNSUPPORTED: of a newer version. A restore that was cut short leaves a store that says so. */
enum status backup_restore(struct store *store, const char *path, int64_t now_ms,
                           struct backup_facts *facts, struct err *err);

#endif
