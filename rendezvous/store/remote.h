/* The rows of a store on etcd, written by the server that leads. The leader has a copy of them in memory, in
 * SQLite, so queries are the same on both kinds of store; etcd has what is durable.
 *
 * Keys, behind the store's prefix:
 *   leader                  who leads; the revision that it was created at is the fencing token
 *   format                  "1 SCHEMA"
 *   seq                     number of the newest commit
 *   layout/TABLE/N          the columns of values that begin with N
 *   rows/TABLE/KEY          rows (rows.h)
 *   pending/valid           a commit that was too large for one transaction and is being carried out:
 *                           "SEQ CHUNKS"
 *   pending/SEQ/CHUNK       its writes
 *
 * A commit is one transaction that holds only if the leader's key has our revision and `seq` is the number of
 * the commit before, which it raises. So a write of an older leader does nothing, and a second copy of a
 * request whose answer was lost does nothing and shows that the first was done. A commit over
 * ETCD_OPS_MAX writes or ETCD_REQUEST_BYTES_MAX is written to `pending` first; the transaction that makes it
 * valid is the commit; then it is carried out, by the next leader if need be. */
#ifndef RENDEZVOUS_STORE_REMOTE_H
#define RENDEZVOUS_STORE_REMOTE_H

#include "rendezvous/store/etcd_client.h"
#include "rendezvous/store/rows.h"
#include "rendezvous/store/store.h"

#define REMOTE_FORMAT 1

struct remote {
    struct store_lead lead;
    struct rows rows;
    uint64_t seq;
    int64_t revision; /* of etcd, after the newest commit */
    bool is_fresh;    /* nothing has been written yet: `format` is not there */
    uint64_t bytes_written, health_at_us;
    struct remote_mark {
        int64_t revision; /* 0: none yet */
        uint64_t commit, bytes, at_us;
    } mark; /* history before it is dropped at the next one */
    bool is_low, is_full;
    struct buf text;       /* keys and values of a commit */
    struct remote_op *ops; /* [op_count] */
    uint32_t op_count, op_capacity;
    struct arena arena;
};

/* A write. Offsets into remote.text. */
struct remote_op {
    size_t key_at, value_at;
    uint32_t key_bytes, value_bytes;
    bool is_delete;
};

/* Fills the empty tables of `db` with what etcd has; where it has nothing yet, is_fresh. Without a revision in
 * `lead` only to read. Errors: STATUS_UNSUPPORTED: of a newer version, or not ours; and those of etcd_client.h. */
enum status remote_open(struct remote *remote, sqlite3 *db, const struct store_lead *lead,
                        struct err *err);
/* The same with a few tables, by a server that does not lead, and nothing is written. */
enum status remote_read(struct remote *remote, sqlite3 *db, const struct store_lead *lead,
                        const char *const *tables, uint32_t table_count, struct err *err);
/* By a server that stands by: all rows as they are at remote->revision. Then remote_apply, with each change from the next revision
 * on, keeps them so; and the next leader takes them with remote_adopt, when they are those of the revision at which it was
 * elected, or of a later one. Errors: STATUS_NOT_FOUND: there is no state yet, or with ETCD_COMPACTED the revision was dropped
 * meanwhile; STATUS_CLOSED: the pace has ended it; those of remote_open. */
struct remote_pace {
    bool (*goes_on)(uint64_t row_count, void *context); /* called after each page; may wait */
    void *context;
};
enum status remote_copy(struct remote *remote, sqlite3 *db, const struct store_lead *lead,
                        const struct remote_pace *pace, uint64_t *row_count, struct err *err);
/* Changes of one or several revisions, all of them, in their order. After an error the rows are of no use. */
enum status remote_apply(struct remote *remote, const struct etcd_answer *changes, struct err *err);
/* Errors: as remote_open. */
enum status remote_adopt(struct remote *remote, const struct store_lead *lead, struct err *err);
void remote_close(struct remote *remote);
/* What was written to the tables since the last call is in etcd when this returns. STATUS_CONFLICT: this
 * server does not lead any more. */
enum status remote_commit(struct remote *remote, struct err *err);
/* Whether etcd is nearly full, as far as it was seen in the last seconds. */
bool remote_is_low(struct remote *remote);

#endif
