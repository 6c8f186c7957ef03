/* The rows of a store on etcd, written by the server that leads. The leader has a copy of them in memory, in
 * SQLite, so queries are the same on both kinds of store; etcd has what is durable.
 *
 * Keys, after the store's prefix:
 *   leader                  who leads; the revision that created it is the fencing token
 *   format                  "1 SCHEMA"
 *   seq                     the number of the newest commit
 *   past                    etcd was put back to an earlier state (past_key.h)
 *   layout/TABLE/N          the columns of values that begin with N
 *   rows/TABLE/KEY          rows (rows.h)
 *   pending/valid           a commit that was too large for one transaction and is being carried out:
 *                           "SEQ CHUNKS"
 *   pending/SEQ/CHUNK       its writes
 *
 * A commit is one transaction. It succeeds only if the leader key has our revision and `seq` is the
 * number of the commit before, and there is no `past`; it increments `seq`. So a write of an older leader does nothing. If
 * the answer to a request was lost, a second copy does nothing and shows that the first one was
 * carried out. A commit over ETCD_OPS_MAX writes or ETCD_REQUEST_BYTES_MAX is written to `pending`
 * first; the transaction that makes it valid is the commit. Then it is carried out, by the next
 * leader if this one fails. */
#ifndef RENDEZVOUS_STORE_REMOTE_H
#define RENDEZVOUS_STORE_REMOTE_H

#include "rendezvous/store/etcd_client.h"
#include "rendezvous/store/remote_history.h"
#include "rendezvous/store/rows.h"
#include "rendezvous/store/store.h"

#define REMOTE_FORMAT 1

struct remote {
    struct store_lead lead;
    struct rows rows;
    uint64_t seq;
    struct remote_point point; /* of a copy: its newest commit */
    int64_t revision;          /* etcd's revision after the newest commit */
    bool is_fresh;             /* etcd has no state yet: `format` is missing */
    int64_t past_at; /* of past_key.h: the next commit removes it; 0: it must not be there */
    bool is_made_to_restore; /* its first commit marks it as half of a restored backup */
    uint64_t bytes_written, health_at_us;
    uint64_t used_bytes, written_at_health; /* of etcd, by its last answer; 0: not known */
    struct remote_mark {
        int64_t revision; /* 0: none yet */
        uint64_t commit, bytes, at_us;
    } mark; /* the next compaction drops history before it */
    bool is_low, is_full;
    struct buf text;       /* keys and values of a commit */
    struct remote_op *ops; /* [op_count] */
    uint32_t op_count, op_capacity;
    struct arena arena;
};

/* One write of a commit, as offsets into remote.text. */
struct remote_op {
    size_t key_at, value_at;
    uint32_t key_bytes, value_bytes;
    bool is_delete;
};

/* Fills the empty tables of `db` from etcd. If etcd has no state yet, sets is_fresh. `lead` without
 * a revision: read only. Errors: STATUS_UNSUPPORTED: the state is of a newer version, or not ours;
 * and those of etcd_client.h. */
enum status remote_open(struct remote *remote, sqlite3 *db, const struct store_lead *lead,
                        struct err *err);
/* The same for a few tables, for a server that does not lead. Nothing is written. */
enum status remote_read(struct remote *remote, sqlite3 *db, const struct store_lead *lead,
                        const char *const *tables, uint32_t table_count, struct err *err);
/* For a server that stands by: reads all rows as of remote->revision. Then remote_apply keeps them
 * up to date with each change from the next revision on. When the server is elected, remote_adopt
 * turns them into the leader's rows; they must be of the revision of its election or a later one.
 * Errors: STATUS_NOT_FOUND: there is no state yet, or with ETCD_COMPACTED: the revision was dropped
 * meanwhile; STATUS_CLOSED: goes_on returned false; those of remote_open. */
struct remote_pace {
    /* Called after each page; may wait. `of`: how many values there were when reading began. */
    bool (*goes_on)(uint64_t row_count, uint64_t of, void *context);
    void *context;
};
enum status remote_copy(struct remote *remote, sqlite3 *db, const struct store_lead *lead,
                        const struct remote_pace *pace, uint64_t *row_count, struct err *err);
/* Applies all changes of one or several revisions, in order. After an error the rows must not be
 * used. */
enum status remote_apply(struct remote *remote, const struct etcd_answer *changes, struct err *err);
/* Errors: as remote_open. */
enum status remote_adopt(struct remote *remote, const struct store_lead *lead, struct err *err);
void remote_close(struct remote *remote);
/* When this returns STATUS_OK, everything written to the tables since the last call is in etcd.
 * STATUS_CONFLICT: this server no longer leads. */
enum status remote_commit(struct remote *remote, struct err *err);
/* Whether etcd was nearly full when it was last asked, some seconds ago at most. */
bool remote_is_low(struct remote *remote);
/* See store_free_bytes. */
uint64_t remote_free_bytes(const struct remote *remote);

#endif
