/* Backups: the whole state as one file, from either kind of store and to either kind.
 *
 * The file: "ddp-backup 1\n", then parts, then the SHA-256 of everything before it. A part is a letter, its
 * length in bytes, and its content:
 *   H  what the backup is of: "schema=9 moved=0 made_ms=... cluster=... version=..."
 *   T  a table: "NAME COLUMN,COLUMN,..."; the rows that follow belong to it
 *   R  a row (rows.h), with layout 1
 *   E  the number of rows
 * The file contains keys, so its mode is 0600.
 *
 * A backup has two uses. A copy of a live state is out of date when it is restored, and nobody knows what was
 * done since. So the restored state gets a new cluster id, by which nodes tell its jobs from those that ran
 * before, and its job and event numbers start above any that may have been given meanwhile. A moved state is
 * the newest: the old one refuses to be used from then on, and the restored one continues it with the same
 * numbers. */
#ifndef RENDEZVOUS_STORE_BACKUP_H
#define RENDEZVOUS_STORE_BACKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "rendezvous/store/store.h"

struct backup_facts {
    int64_t made_ms;
    char cluster[33];
    bool
        is_moved; /* restored: with its cluster id and all numbers; the first time that this file is */
    bool was_moved;     /* the file is of a moved state */
    char why_copy[160]; /* was_moved, but not is_moved: why it was restored like a copy */
    uint64_t job_count, row_count;
};

/* Backs up DIR. Its server may be running: the backup has the state at one moment. `path` must not
 * exist yet. Errors: STATUS_CONFLICT: it exists; STATUS_NOT_FOUND: DIR has no state;
 * STATUS_UNSUPPORTED: the state is of another version. */
enum status backup_dir(const char *dir, const char *path, int64_t now_ms,
                       struct backup_facts *facts, struct err *err);
/* How many jobs the state of DIR has, unless it was moved away. 0: there is no state, or it cannot
 * be read. */
uint64_t backup_jobs_left(const char *dir);
enum status backup_etcd(struct etcd_client *client, const char *prefix, const char *path,
                        int64_t now_ms, struct backup_facts *facts, struct err *err);
/* Moves the state of an open store into a file. The store is unusable afterwards. */
enum status backup_move(struct store *store, const char *path, int64_t now_ms,
                        struct backup_facts *facts, struct err *err);

/* Checks the whole file, and reads what it says of itself. Errors: STATUS_BAD_INPUT, STATUS_NOT_FOUND,
 * STATUS_UNSUPPORTED, as backup_restore. */
enum status backup_check(const char *path, struct backup_facts *facts, struct err *err);
/* STATUS_CONFLICT: the store has jobs, events or keys. */
enum status backup_check_new(struct store *store, struct err *err);
/* Restores into a new store. The whole file is checked before anything is written. Errors:
 * STATUS_CONFLICT: the store has jobs, events or keys already; STATUS_BAD_INPUT: the file is
 * damaged or no backup; STATUS_UNSUPPORTED: it is of a newer version. A moved state is restored as such once: the
 * file is marked as used. A used file, or one that cannot be marked, is restored like a copy. A restore that is interrupted
 * leaves a store that reports this. */
enum status backup_restore(struct store *store, const char *path, int64_t now_ms,
                           struct backup_facts *facts, struct err *err);

#endif
