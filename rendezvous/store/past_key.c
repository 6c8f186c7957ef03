#include "rendezvous/store/past_key.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/io/conn.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/remote_internal.h"

#define REQUEST_US 5000000u
#define TRIES_MAX 8 /* other standbys may write the key at the same time */

void past_key_take(struct past_key *past, const struct etcd_row *row)
{
    char text[SEEN_ID_BYTES + SEEN_FILE_BYTES] = "";
    int id_bytes = 0;

    *past = (struct past_key){.at = 0};
    if (row == NULL)
        return;
    past->at = row->modified;
    if (row->value.byte_count < sizeof text)
        (void)snprintf(text, sizeof text, "%.*s", (int)row->value.byte_count, row->value.bytes);
    if (sscanf(text, "%32s %n", past->of, &id_bytes) != 1 || id_bytes == 0 ||
        !seen_decode(text + id_bytes, &past->seen))
        past->of[0] = '\0';
}

enum status past_key_read(struct etcd_client *client, const char *prefix, uint64_t deadline_us,
                          struct past_key *past, struct err *err)
{
    char key[REMOTE_KEY_BYTES_MAX];
    struct etcd_op range = {.kind = ETCD_RANGE};
    struct etcd_answer answer;
    struct arena arena = {0};
    enum status status;

    (void)snprintf(key, sizeof key, "%spast", prefix);
    range.key = etcd_text(key);
    status = etcd_range(client, &range, deadline_us, &arena, &answer, err);
    if (status == STATUS_OK)
        past_key_take(past, remote_row(&answer, range.key));
    arena_reset(&arena);
    return status;
}

/* -- a standby writes it -------------------------------------------------------------------------- */

/* The key, and the rows that change when the state gets another id. */
enum { PAST, CLUSTER, RESTORE, KEYS };
static const char *const names[KEYS] = {"past", "rows/meta/cluster", "rows/meta/restore"};

struct keys {
    char text[KEYS][REMOTE_KEY_BYTES_MAX];
    int64_t modified[KEYS]; /* 0: it is not there */
};

static enum status read_keys(struct etcd_client *client, const char *prefix, struct keys *keys,
                             struct past_key *past, struct err *err)
{
    struct etcd_op reads[KEYS];
    const struct etcd_txn txn = {.then = reads, .then_count = KEYS};
    struct etcd_answer answer;
    struct arena arena = {0};
    enum status status;

    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(keys->text[i], sizeof keys->text[i], "%s%s", prefix, names[i]);
        reads[i] = (struct etcd_op){.kind = ETCD_RANGE, .key = etcd_text(keys->text[i])};
    }
    status = etcd_transact(client, &txn, clock_boot_us() + REQUEST_US, &arena, &answer, err);
    for (int i = 0; status == STATUS_OK && i < KEYS; i++) {
        const struct etcd_row *row = remote_row(&answer, reads[i].key);

        keys->modified[i] = row != NULL ? row->modified : 0;
        if (i == PAST)
            past_key_take(past, row);
    }
    arena_reset(&arena);
    return status;
}

/* Unless one of the keys has changed since they were read. */
static enum status write_key(struct etcd_client *client, const struct keys *keys, const char *of,
                             const struct seen *seen, bool *is_done, struct err *err)
{
    char text[SEEN_FILE_BYTES], value[SEEN_ID_BYTES + SEEN_FILE_BYTES];
    struct etcd_compare compares[KEYS];
    struct etcd_op put = {.kind = ETCD_PUT, .key = etcd_text(keys->text[PAST])};
    const struct etcd_txn txn = {
        .compares = compares, .compare_count = KEYS, .then = &put, .then_count = 1};
    struct etcd_answer answer = {.is_met = false};
    struct arena arena = {0};
    enum status status;

    (void)seen_encode(seen, text);
    (void)snprintf(value, sizeof value, "%s %s", of, text);
    put.value = etcd_text(value);
    for (int i = 0; i < KEYS; i++)
        compares[i] = (struct etcd_compare){.target = ETCD_MODIFIED,
                                            .key = etcd_text(keys->text[i]),
                                            .revision = keys->modified[i]};
    status = etcd_transact(client, &txn, clock_boot_us() + REQUEST_US, &arena, &answer, err);
    *is_done = answer.is_met;
    arena_reset(&arena);
    return status;
}

/* Whether `seen` adds nothing to what `had` says. */
static bool adds_nothing(const struct seen *had, const struct seen *seen)
{
    struct seen joined = *had;

    seen_join(&joined, seen);
    return seen_is_same(&joined, had) && joined.commit == had->commit &&
           joined.job_id == had->job_id && joined.event_id == had->event_id &&
           joined.lease_us == had->lease_us;
}

/* look->now is of `revision`, or of a later one. A state that got another id since then is no longer of the past: somebody took
 * notice. */
static enum status tell(struct etcd_client *client, const char *prefix, int64_t revision,
                        const struct seen *before, struct past_look *look, struct err *err)
{
    const char *of = seen_id(&look->now);

    look->is_past = false;
    for (int i = 0; i < TRIES_MAX; i++) {
        struct seen seen = *before;
        struct past_key past;
        struct keys keys;
        bool is_done = false;
        enum status status = read_keys(client, prefix, &keys, &past, err);

        if (status != STATUS_OK || keys.modified[CLUSTER] > revision ||
            keys.modified[RESTORE] > revision)
            return status;
        if (strcmp(past.of, of) == 0)
            seen_join(&seen, &past.seen);
        look->is_past = true;
        if (strcmp(past.of, of) == 0 && adds_nothing(&past.seen, before))
            return STATUS_OK;
        status = write_key(client, &keys, of, &seen, &is_done, err);
        if (status != STATUS_OK || is_done)
            return status;
        look->is_past = false;
    }
    return err_set(err, STATUS_BUSY, 0, "the key %spast in etcd changes all the time", prefix);
}

/* -- what is to be told --------------------------------------------------------------------------- */

/* A backup that is being restored has the ids of its state before it gets its own. */
static enum status compare(struct store *store, const struct seen *before, uint64_t commit,
                           bool has_jobs, struct past_look *look, struct err *err)
{
    int64_t marks = 0;
    enum status status = store_seen(store, &look->now, commit, err);

    if (status == STATUS_OK)
        status = store_number(store, "SELECT count(*) FROM main.meta WHERE name = 'restoring'",
                              &marks, err);
    if (!has_jobs)
        look->now.job_id = before->job_id;
    look->is_past = status == STATUS_OK && marks == 0 && seen_is_past(&look->now, before);
    return status;
}

/* The newest commit, and etcd's revision then. */
static enum status read_commit(struct etcd_client *client, const char *prefix,
                               struct remote_point *point, int64_t *revision, struct err *err)
{
    char key[REMOTE_KEY_BYTES_MAX];
    struct etcd_op range = {.kind = ETCD_RANGE};
    struct etcd_answer answer;
    struct arena arena = {0};
    enum status status;

    (void)snprintf(key, sizeof key, "%sseq", prefix);
    range.key = etcd_text(key);
    status = etcd_range(client, &range, clock_boot_us() + REQUEST_US, &arena, &answer, err);
    if (status == STATUS_OK &&
        (answer.row_count != 1 || !remote_take_point(point, &answer.rows[0])))
        status = err_set(err, STATUS_NOT_FOUND, 0, "etcd has no state under %s", prefix);
    *revision = status == STATUS_OK ? answer.revision : 0;
    arena_reset(&arena);
    return status;
}

/* The commit is read before the ids: if they are still those of then, it is theirs. */
enum status past_key_look(struct etcd_client *client, const char *prefix, const struct seen *before,
                          struct past_look *look, struct err *err)
{
    static const char *const tables[] = {"meta"};
    const struct store_lead lead = {.client = client, .prefix = prefix};
    struct remote_point point = {.commit = 0};
    struct store *store = NULL;
    int64_t revision = 0;
    enum status status = read_commit(client, prefix, &point, &revision, err);

    look->is_past = false;
    if (status == STATUS_OK)
        status = store_make_empty(&store, &lead, err);
    if (status == STATUS_OK)
        status = remote_read(store->remote, store->db, &lead, tables, 1, err);
    if (status == STATUS_OK)
        status = compare(store, before, point.commit, false, look, err);
    if (store != NULL)
        store_release(store);
    if (status != STATUS_OK || !look->is_past)
        return status;
    return tell(client, prefix, revision, before, look, err);
}

enum status past_key_look_at(struct etcd_client *client, struct store *store,
                             const struct seen *before, struct past_look *look, struct err *err)
{
    const struct remote *remote = store->remote;
    enum status status = compare(store, before, remote->point.commit, true, look, err);

    if (status != STATUS_OK || !look->is_past)
        return status;
    return tell(client, remote->lead.prefix, remote->revision, before, look, err);
}
