/* Commits to etcd. remote_load.c reads. */
#include "rendezvous/store/remote.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/past_key.h"
#include "rendezvous/store/remote_internal.h"

#define REQUEST_US 10000000u
#define CHUNK_BYTES (512u * 1024u)
#define OPS_PER_TXN (ETCD_OPS_MAX - 2u) /* the rest: `seq` and `past`, or the end of `pending` */
#define GUARDS_MAX 2                    /* of a commit: `seq`, `past` */
#define COMPACT_COMMITS 1000u
#define KEEP_US 120000000u /* how long history is kept: reading all rows of one revision needs it */
#define KEEP_PART 16u      /* of the quota, at most */
#define HEALTH_US 10000000u
#define HEALTH_WAIT_US 500000u
#define LOW_PART 9u /* tenths of the quota */

/* -- one transaction of the leader -- */

uint64_t remote_deadline(struct remote *remote)
{
    uint64_t until_us =
        remote->lead.until_us != NULL ? remote->lead.until_us(remote->lead.context) : UINT64_MAX;
    uint64_t limit_us = clock_boot_us() + REQUEST_US;

    return until_us < limit_us ? until_us : limit_us;
}

struct etcd_bytes remote_key(const struct remote *remote, char *key, const char *format, ...)
{
    size_t at = strlen(remote->lead.prefix);
    va_list args;

    memcpy(key, remote->lead.prefix, at);
    va_start(args, format);
    (void)vsnprintf(key + at, REMOTE_KEY_BYTES_MAX - at, format, args);
    va_end(args);
    return etcd_text(key);
}

const struct etcd_row *remote_row(const struct etcd_answer *answer, struct etcd_bytes key)
{
    for (uint32_t i = 0; i < answer->row_count; i++)
        if (answer->rows[i].key.byte_count == key.byte_count &&
            memcmp(answer->rows[i].key.bytes, key.bytes, key.byte_count) == 0)
            return &answer->rows[i];
    return NULL;
}

enum status remote_lost(struct err *err)
{
    return err_set(err, STATUS_CONFLICT, 0,
                   "another server leads: this one's writes are not taken any more");
}

/* Carries out the writes if the leader key is ours and the guards are as expected. `*is_done` false: they were not although
 * we lead; `answer` then has the rows of their keys (in the arena). */
static enum status write_guarded(struct remote *remote, const struct etcd_op *ops,
                                 uint32_t op_count, const struct etcd_compare *guards,
                                 uint32_t guard_count, bool *is_done, struct etcd_answer *answer,
                                 struct err *err)
{
    char leader_key[REMOTE_KEY_BYTES_MAX];
    struct etcd_bytes leader = remote_key(remote, leader_key, "leader");
    struct etcd_compare compares[1 + GUARDS_MAX] = {
        {.target = ETCD_CREATED, .key = leader, .revision = remote->lead.revision}};
    struct etcd_op reads[1 + GUARDS_MAX] = {{.kind = ETCD_RANGE, .key = leader}};
    struct etcd_txn txn = {compares, ops, reads, 1 + guard_count, op_count, 1 + guard_count};
    const struct etcd_row *row;
    enum status status;

    assert(guard_count <= GUARDS_MAX);
    for (uint32_t i = 0; i < guard_count; i++) {
        compares[1 + i] = guards[i];
        reads[1 + i] = (struct etcd_op){.kind = ETCD_RANGE, .key = guards[i].key};
    }
    status = etcd_transact(remote->lead.client, &txn, remote_deadline(remote), &remote->arena,
                           answer, err);
    if (status != STATUS_OK)
        return status;
    *is_done = answer->is_met;
    remote->revision = answer->revision;
    if (answer->is_met)
        return STATUS_OK;
    row = remote_row(answer, leader);
    return row == NULL || row->created != remote->lead.revision ? remote_lost(err) : STATUS_OK;
}

/* The same with one guard. `value`: what etcd has instead; NULL: nothing. */
enum status remote_write(struct remote *remote, const struct etcd_op *ops, uint32_t op_count,
                         const struct etcd_compare *guard, bool *is_done,
                         const struct etcd_row **value, struct err *err)
{
    struct etcd_answer answer;
    enum status status = write_guarded(remote, ops, op_count, guard, 1, is_done, &answer, err);

    if (status == STATUS_OK)
        *value = *is_done ? NULL : remote_row(&answer, guard->key);
    return status;
}

/* -- the writes of a commit -- */

bool remote_add_op(struct remote *remote, size_t key_at, size_t key_bytes, size_t value_at,
                   size_t value_bytes, bool is_delete)
{
    if (remote->op_count == remote->op_capacity) {
        uint32_t capacity = remote->op_capacity * 2 + 64;
        struct remote_op *ops = realloc(remote->ops, capacity * sizeof *ops);

        if (ops == NULL)
            return false;
        remote->ops = ops;
        remote->op_capacity = capacity;
    }
    remote->ops[remote->op_count++] = (struct remote_op){.key_at = key_at,
                                                         .value_at = value_at,
                                                         .key_bytes = (uint32_t)key_bytes,
                                                         .value_bytes = (uint32_t)value_bytes,
                                                         .is_delete = is_delete};
    return true;
}

/* Adds a write of PREFIX `folder` `key`; `value` NULL: the key is removed. */
static bool add_op(struct remote *remote, const char *folder, const char *key, const char *value,
                   size_t value_bytes)
{
    struct buf *text = &remote->text;
    size_t key_at = text->byte_count, value_at;

    buf_add_text(text, remote->lead.prefix);
    buf_add_text(text, folder);
    buf_add_text(text, key);
    value_at = text->byte_count;
    buf_add(text, value != NULL ? value : "", value_bytes);
    return !text->failed &&
           remote_add_op(remote, key_at, value_at - key_at, value_at, value_bytes, value == NULL);
}

static bool on_key(const char *key, const struct buf *value, void *context)
{
    return add_op(context, "rows/", key, value != NULL ? value->bytes : NULL,
                  value != NULL ? value->byte_count : 0);
}

bool remote_add_text(struct remote *remote, const char *key, const char *value)
{
    return add_op(remote, "", key, value, strlen(value));
}

struct etcd_op remote_etcd_op(const struct remote *remote, const struct remote_op *op)
{
    const char *text = remote->text.bytes;

    return (struct etcd_op){.kind = op->is_delete ? ETCD_DELETE : ETCD_PUT,
                            .key = {text + op->key_at, op->key_bytes},
                            .value = {text + op->value_at, op->value_bytes}};
}

/* -- a commit in one transaction -- */

struct seq {
    char key_bytes[REMOTE_KEY_BYTES_MAX], before[24], after[24];
    struct etcd_compare guard;
    struct etcd_op op;
};

/* The first commit finds no `seq`. */
static void make_seq(const struct remote *remote, struct seq *seq)
{
    struct etcd_bytes key = remote_key(remote, seq->key_bytes, "seq");

    (void)snprintf(seq->before, sizeof seq->before, "%" PRIu64, remote->seq);
    (void)snprintf(seq->after, sizeof seq->after, "%" PRIu64, remote->seq + 1);
    seq->guard = remote->is_fresh
                     ? (struct etcd_compare){.target = ETCD_CREATED, .key = key, .revision = 0}
                     : (struct etcd_compare){
                           .target = ETCD_VALUE, .key = key, .value = etcd_text(seq->before)};
    seq->op = (struct etcd_op){.kind = ETCD_PUT, .key = key, .value = etcd_text(seq->after)};
}

/* A standby has seen a later state (past_key.h). */
static enum status is_of_past(const struct etcd_row *row, struct err *err)
{
    struct past_key past;

    past_key_take(&past, row);
    return err_set(err, STATUS_CONFLICT, 0,
                   "etcd was put back to an earlier state, which this server did not know; another "
                   "one has seen commit %" PRIu64 ", job %" PRIu64,
                   past.seen.commit, past.seen.job_id);
}

/* Commits the writes in one transaction. Two more must have room in `ops`: the new `seq`, and the removal of `past`. */
static enum status commit_ops(struct remote *remote, struct etcd_op *ops, uint32_t op_count,
                              struct err *err)
{
    char past_key[REMOTE_KEY_BYTES_MAX];
    const struct etcd_bytes past = remote_key(remote, past_key, "past");
    struct etcd_compare guards[GUARDS_MAX] = {
        {0}, {.target = ETCD_MODIFIED, .key = past, .revision = remote->past_at}};
    const struct etcd_row *row = NULL, *put_back = NULL;
    struct etcd_answer answer;
    struct seq seq;
    bool is_done;
    enum status status;

    make_seq(remote, &seq);
    guards[0] = seq.guard;
    ops[op_count++] = seq.op;
    if (remote->past_at != 0)
        ops[op_count++] = (struct etcd_op){.kind = ETCD_DELETE, .key = past};
    status = write_guarded(remote, ops, op_count, guards, GUARDS_MAX, &is_done, &answer, err);
    if (status != STATUS_OK)
        return status;
    if (!is_done) {
        row = remote_row(&answer, seq.guard.key);
        put_back = remote_row(&answer, past);
    }
    /* An earlier copy of the request did it; its answer was lost. */
    if (!is_done && row != NULL && etcd_bytes_are(row->value, seq.after))
        is_done = true;
    if (!is_done && put_back != NULL && put_back->modified != remote->past_at)
        return is_of_past(put_back, err);
    if (!is_done)
        return err_set(err, STATUS_CONFLICT, 0,
                       "the state in etcd was changed by something else: its commit is %.20s, ours "
                       "%s",
                       row != NULL ? row->value.bytes : "not there", seq.before);
    remote->seq++;
    remote->past_at = 0;
    remote->is_fresh = false;
    return STATUS_OK;
}

static enum status commit_at_once(struct remote *remote, struct err *err)
{
    struct etcd_op ops[ETCD_OPS_MAX];

    for (uint32_t i = 0; i < remote->op_count; i++)
        ops[i] = remote_etcd_op(remote, &remote->ops[i]);
    return commit_ops(remote, ops, remote->op_count, err);
}

/* -- a commit in several -- */

static void put_bytes(struct buf *out, const char *bytes, size_t byte_count)
{
    row_put_number(out, byte_count);
    buf_add(out, bytes, byte_count);
}

static void put_ops(const struct remote *remote, struct buf *out)
{
    for (uint32_t i = 0; i < remote->op_count; i++) {
        const struct remote_op *op = &remote->ops[i];

        row_put_number(out, op->is_delete);
        put_bytes(out, remote->text.bytes + op->key_at, op->key_bytes);
        put_bytes(out, remote->text.bytes + op->value_at, op->value_bytes);
    }
}

/* Each chunk is guarded by the `seq` before this commit, so a late copy of the request does
 * nothing. */
static enum status stage_chunks(struct remote *remote, const struct buf *all, uint32_t *chunk_count,
                                struct err *err)
{
    enum status status = STATUS_OK;
    const struct etcd_row *row;
    struct seq seq;
    bool is_done;

    make_seq(remote, &seq);
    for (*chunk_count = 0; status == STATUS_OK && *chunk_count * CHUNK_BYTES < all->byte_count;
         (*chunk_count)++) {
        size_t at = (size_t)*chunk_count * CHUNK_BYTES, left = all->byte_count - at;
        char key[REMOTE_KEY_BYTES_MAX];
        struct etcd_op op = {
            .kind = ETCD_PUT,
            .key = remote_key(remote, key, "pending/%s/%08u", seq.after, *chunk_count),
            .value = {all->bytes + at, left < CHUNK_BYTES ? left : CHUNK_BYTES}};

        status = remote_write(remote, &op, 1, &seq.guard, &is_done, &row, err);
        if (status == STATUS_OK && !is_done)
            status =
                err_set(err, STATUS_CONFLICT, 0, "the state in etcd was changed by something else");
    }
    return status;
}

/* Carries out the writes in groups. Each is guarded by `pending/valid` still naming this commit,
 * and the last group removes that key. So a late copy of a group does nothing. */
enum status remote_carry_out(struct remote *remote, const char *valid, struct err *err)
{
    char valid_key[REMOTE_KEY_BYTES_MAX], from[REMOTE_KEY_BYTES_MAX], to[REMOTE_KEY_BYTES_MAX];
    struct etcd_compare guard = {.target = ETCD_VALUE,
                                 .key = remote_key(remote, valid_key, "pending/valid"),
                                 .value = etcd_text(valid)};
    struct etcd_op last = {.kind = ETCD_DELETE,
                           .key = remote_key(remote, from, "pending/"),
                           .end = remote_key(remote, to, "pending0")};
    struct etcd_op ops[ETCD_OPS_MAX];
    uint32_t i = 0;

    do {
        const struct etcd_row *row;
        uint32_t count = 0;
        size_t bytes = 0;
        bool is_done, is_last;
        enum status status;

        for (; i < remote->op_count && count < OPS_PER_TXN; i++) {
            size_t more = (size_t)remote->ops[i].key_bytes + remote->ops[i].value_bytes;

            if (count > 0 && bytes + more > ETCD_REQUEST_BYTES_MAX)
                break;
            ops[count++] = remote_etcd_op(remote, &remote->ops[i]);
            bytes += more;
        }
        is_last = i == remote->op_count;
        if (is_last)
            ops[count++] = last;
        status = remote_write(remote, ops, count, &guard, &is_done, &row, err);
        if (status != STATUS_OK)
            return status;
        if (!is_done && !(is_last && row == NULL)) /* else an earlier copy did it */
            return err_set(err, STATUS_CONFLICT, 0,
                           "a commit in etcd was changed by something else while it was carried "
                           "out");
        arena_reset(&remote->arena);
    } while (i < remote->op_count);
    return STATUS_OK;
}

static enum status commit_in_pieces(struct remote *remote, struct err *err)
{
    char key[REMOTE_KEY_BYTES_MAX], valid[48];
    struct buf all = {0};
    struct etcd_op ops[3];
    uint32_t chunk_count = 0;
    enum status status;

    put_ops(remote, &all);
    status = all.failed ? err_set(err, STATUS_MEMORY, 0, "no memory for a commit to etcd")
                        : stage_chunks(remote, &all, &chunk_count, err);
    buf_free(&all);
    (void)snprintf(valid, sizeof valid, "%" PRIu64 " %u", remote->seq + 1, chunk_count);
    ops[0] = (struct etcd_op){.kind = ETCD_PUT,
                              .key = remote_key(remote, key, "pending/valid"),
                              .value = etcd_text(valid)};
    if (status == STATUS_OK)
        status = commit_ops(remote, ops, 1, err);
    return status == STATUS_OK ? remote_carry_out(remote, valid, err) : status;
}

/* -- its room -- */

/* A short deadline: only this server waits for the answer. */
static uint64_t health_deadline(struct remote *remote)
{
    uint64_t until_us = remote_deadline(remote), limit_us = clock_boot_us() + HEALTH_WAIT_US;

    return until_us < limit_us ? until_us : limit_us;
}

/* etcd keeps old values of keys until it is told to compact: drops history up to the mark before
 * the last one. */
static void compact(struct remote *remote)
{
    struct remote_mark *mark = &remote->mark;
    int64_t revision = mark->revision;
    uint64_t now_us = clock_boot_us();
    struct err err;

    if (remote->seq < mark->commit + COMPACT_COMMITS ||
        (now_us < mark->at_us + KEEP_US &&
         remote->bytes_written < mark->bytes + remote->lead.quota_bytes / KEEP_PART))
        return;
    *mark = (struct remote_mark){.revision = remote->revision,
                                 .commit = remote->seq,
                                 .bytes = remote->bytes_written,
                                 .at_us = now_us};
    if (revision != 0 &&
        etcd_compact(remote->lead.client, revision, health_deadline(remote), &err) != STATUS_OK)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "old revisions in etcd cannot be dropped: %s",
                 err.text);
}

bool remote_is_low(struct remote *remote)
{
    uint64_t now_us = clock_boot_us(), quota = remote->lead.quota_bytes;
    struct etcd_health health;
    struct err err;
    bool is_low;

    if (remote->health_at_us != 0 && now_us < remote->health_at_us + HEALTH_US)
        return remote->is_low;
    remote->health_at_us = now_us;
    if (etcd_health(remote->lead.client, health_deadline(remote), &health, &err) != STATUS_OK) {
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "how full etcd is cannot be asked: %s", err.text);
        return remote->is_low;
    }
    remote->used_bytes = health.used_bytes;
    remote->written_at_health = remote->bytes_written;
    is_low = health.is_full || health.database_bytes > quota / 10 * LOW_PART;
    if (is_low && !remote->is_low)
        log_line(LOG_ERROR, LOG_ABOUT_NONE,
                 "etcd is nearly full (%" PRIu64 " of %" PRIu64 " MiB, %" PRIu64
                 " MiB in use%s): new jobs and keys are refused and events are not stored; give it "
                 "a larger --quota-backend-bytes, or `etcdctl defrag` each member%s",
                 health.database_bytes >> 20, quota >> 20, health.used_bytes >> 20,
                 health.is_full ? ", and takes no writes" : "",
                 health.is_full ? ", then `etcdctl alarm disarm`" : "");
    else if (!is_low && remote->is_low)
        log_line(LOG_INFO, LOG_ABOUT_NONE, "etcd has room again");
    remote->is_low = is_low;
    return is_low;
}

/* etcd uses the free pages of its database again, so what is in use counts. What was written since is
 * in use, too: it is kept as history for a while. */
uint64_t remote_free_bytes(const struct remote *remote)
{
    const uint64_t most = remote->lead.quota_bytes / 10 * LOW_PART;
    const uint64_t used = remote->used_bytes + (remote->bytes_written - remote->written_at_health);

    if (remote->used_bytes == 0)
        return UINT64_MAX;
    return used < most ? most - used : 0;
}

/* -- a commit -- */

static size_t count_bytes(const struct remote *remote)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < remote->op_count; i++)
        bytes += (size_t)remote->ops[i].key_bytes + remote->ops[i].value_bytes;
    return bytes;
}

enum status remote_commit_ops(struct remote *remote, struct err *err)
{
    enum status status = STATUS_OK;

    remote->bytes_written += count_bytes(remote);
    if (remote->op_count == 1 ||
        (remote->op_count <= OPS_PER_TXN && count_bytes(remote) <= ETCD_REQUEST_BYTES_MAX))
        status = commit_at_once(remote, err);
    else if (remote->op_count > 0)
        status = commit_in_pieces(remote, err);
    remote->op_count = 0;
    remote->text.byte_count = 0;
    arena_reset(&remote->arena);
    return status;
}

enum status remote_mark_restore(struct remote *remote, struct err *err)
{
    if (!remote->is_fresh || !remote->lead.is_restore)
        return STATUS_OK;
    remote->is_made_to_restore = true;
    if (sqlite3_exec(remote->rows.db, STORE_RESTORING_SQL, NULL, NULL, NULL) == SQLITE_OK)
        return STATUS_OK;
    return err_set(err, STATUS_IO, 0, "SQLite: %s", sqlite3_errmsg(remote->rows.db));
}

enum status remote_commit(struct remote *remote, struct err *err)
{
    enum status status;

    if (!rows_changed(&remote->rows, on_key, remote) || !rows_forget(&remote->rows))
        return err_set(err, STATUS_MEMORY, 0, "the rows of a commit cannot be read: %s",
                       sqlite3_errmsg(remote->rows.db));
    status = remote_commit_ops(remote, err);
    if (status == STATUS_OK)
        compact(remote);
    return status;
}

void remote_close(struct remote *remote)
{
    rows_close(&remote->rows);
    free(remote->ops);
    buf_free(&remote->text);
    arena_reset(&remote->arena);
}
