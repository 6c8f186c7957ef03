/* How far a state on etcd has come: written by the server that leads (seen.h), read by the next one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/io/conn.h"
#include "common/log.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/past_key.h"
#include "rendezvous/store/remote.h"
#include "rendezvous/store/seen_keeper.h"

#define NOTE_US 1000000u
#define LAST_MS 1000u /* for the last note of a server that ends */
#define NEWS_MS 100u  /* for a new number, while the disk answers */

static enum status read_meta(struct store *store, const char *name, char *out, size_t out_bytes,
                             struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status status = STATUS_OK;

    (void)snprintf(out, out_bytes, "-");
    if (sqlite3_prepare_v2(store->db, "SELECT value FROM main.meta WHERE name = ?", -1, &stmt,
                           NULL) != SQLITE_OK ||
        sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC) != SQLITE_OK)
        status = err_set(err, STATUS_IO, 0, "SQLite: %s", sqlite3_errmsg(store->db));
    else if (sqlite3_step(stmt) == SQLITE_ROW)
        (void)snprintf(out, out_bytes, "%s", store_text(stmt, 0));
    (void)sqlite3_finalize(stmt);
    return status;
}

enum status store_seen(struct store *store, struct seen *seen, uint64_t commit, struct err *err)
{
    int64_t job_id = 0, event_id = 0, lease_us = 0;
    enum status status;

    *seen = (struct seen){.commit = commit};
    status = read_meta(store, "cluster", seen->cluster, sizeof seen->cluster, err);
    if (status == STATUS_OK)
        status = read_meta(store, "restore", seen->restore, sizeof seen->restore, err);
    if (status == STATUS_OK)
        status = read_meta(store, "lineage", seen->lineage, sizeof seen->lineage, err);
    if (status == STATUS_OK)
        status = store_number(store, "SELECT " STORE_NEWEST_JOB_SQL, &job_id, err);
    if (status == STATUS_OK)
        status =
            store_number(store, "SELECT coalesce(max(id), 0) FROM main.events", &event_id, err);
    if (status == STATUS_OK)
        status = store_number(store, "SELECT " STORE_META_SQL("lease_us"), &lease_us, err);
    seen->lease_us = lease_us > 0 && lease_us < (int64_t)DURATION_US_MAX ? (uint64_t)lease_us : 0;
    seen->job_id = job_id > 0 ? (uint64_t)job_id : 0;
    seen->event_id = event_id > 0 ? (uint64_t)event_id : 0;
    return status;
}

/* A thread writes it. A new number waits until it is noted: a second at most for a disk that hangs, and not again until
 * that disk answers. After a failed write, on a full disk for example, the file has an older commit. */
static void note(struct store *store, bool is_last, bool is_news)
{
    struct seen_keeper *keeper = store->remote->lead.seen;
    struct seen seen;
    struct err err;

    store->seen_at_us = clock_boot_us();
    store->has_news = false;
    if (keeper == NULL || store_seen(store, &seen, store->remote->seq, &err) != STATUS_OK)
        return;
    if (seen.lease_us < store->seen.lease_us)
        seen.lease_us = store->seen.lease_us;
    store->seen_hangs = store->seen_hangs && !seen_keeper_wait(keeper, 0);
    seen_keeper_note(keeper, &seen);
    if (is_last)
        (void)seen_keeper_wait(keeper, LAST_MS);
    else if (is_news && !store->seen_hangs)
        store->seen_hangs = !seen_keeper_wait(keeper, NEWS_MS);
}

void store_note_seen(struct store *store, bool now)
{
    if (now || store->has_news || clock_boot_us() >= store->seen_at_us + NOTE_US)
        note(store, now, store->has_news);
}

void store_note_end(struct store *store)
{
    if (!store->in_transaction && store->cluster[0] != '\0')
        note(store, true, false);
}

/* `who` has seen `before`. */
static enum status put_back(struct store *store, const char *was, const struct seen *before,
                            const char *who, struct err *err)
{
    char cluster[SEEN_ID_BYTES], event[240];
    const struct store_gap gap = {.cluster = cluster,
                                  .now_ms = clock_wall_ms(),
                                  .job_id = before->job_id,
                                  .event_id = before->event_id,
                                  .event_sql = event};
    enum status status = store_make_cluster(cluster, err);

    store->is_newest = false;
    log_line(LOG_WARNING, LOG_ABOUT_NONE,
             STORE_WENT_BACK
             " (commit %" PRIu64 " of cluster %s; commit %" PRIu64
             " of cluster %s was seen%s), as after a restored snapshot. What was done since is "
             "lost; no number of "
             "it is given again. The state gets a new cluster id: jobs that ran then start again "
             "from their checkpoints in %u s, when the leases of what still runs of them are over",
             store->remote->seq, was, before->commit, before->cluster, who,
             LEASE_DEFAULT_US / 1000000u);
    (void)snprintf(event, sizeof event,
                   "'etcd was put back to commit %" PRIu64 " of cluster %s; commit %" PRIu64
                   " of cluster %s had been seen%s'",
                   store->remote->seq, was, before->commit, before->cluster, who);
    if (status == STATUS_OK)
        status = store_begin_history(store, before, err);
    if (status == STATUS_OK)
        status = store_leave_gap(store, &gap, err);
    if (status == STATUS_OK)
        status = remote_commit(store->remote, err);
    if (status == STATUS_OK)
        store_note_seen(store, true);
    return status;
}

/* The state may be a restored one, or that of another cluster: somebody has made it. */
static void tell_other(const struct seen *before, const struct seen *now)
{
    log_line(LOG_WARNING, LOG_ABOUT_NONE,
             "etcd has the state of cluster %s; this server has seen cluster %s before (commit "
             "%" PRIu64 ", job %" PRIu64 "). Unless it was restored from a backup: is it the right "
             "etcd (--store)?",
             now->cluster, before->cluster, before->commit, before->job_id);
}

/* This server did not follow while another one led, so etcd may have been put back before it came. What waits in the
 * state starts after a lease (store_is_copy). Without a file of its own it cannot tell which numbers were given, either. */
static enum status doubt(struct store *store, bool knows_nothing, struct err *err)
{
    enum status status = store_mark_copy(store, clock_wall_ms(), err);

    if (status == STATUS_OK && knows_nothing)
        status = store_skip_jobs(store, err);
    return status == STATUS_OK ? remote_commit(store->remote, err) : status;
}

/* What is known of a later state than `now`: by this server, of which `seen` is the file, or by the one that wrote the key
 * of past_key.h. False: nothing. */
static bool find_later(const struct seen *now, const struct seen *seen, const struct past_key *past,
                       struct seen *later, const char **who)
{
    const bool is_known = seen != NULL && seen_is_past(now, seen);
    const bool is_told = strcmp(past->of, seen_id(now)) == 0;

    *who = is_known ? "" : " by another server";
    if (is_known)
        *later = *seen;
    else if (is_told)
        *later = past->seen;
    if (is_known && is_told)
        seen_join(later, &past->seen);
    return is_known || is_told;
}

enum status store_check_seen(struct store *store, const struct past_key *past, struct err *err)
{
    struct seen_keeper *keeper = store->remote->lead.seen;
    struct seen now, before = {.commit = 0}, later;
    enum status status, found = STATUS_NOT_FOUND;
    const char *who;
    struct err why;

    if (keeper == NULL && past->at == 0)
        return STATUS_OK;
    status = store_seen(store, &now, store->remote->seq, err);
    if (keeper != NULL)
        found = seen_keeper_last(keeper, &before, &why);
    if (status != STATUS_OK)
        return status;
    store->seen.lease_us = before.lease_us;
    if (found != STATUS_OK && found != STATUS_NOT_FOUND)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "%s: whether etcd was put back to an earlier state cannot be told", why.text);
    if (find_later(&now, found == STATUS_OK ? &before : NULL, past, &later, &who)) {
        if (store->seen.lease_us < later.lease_us)
            store->seen.lease_us = later.lease_us;
        return put_back(store, now.cluster, &later, who, err);
    }
    if (found == STATUS_OK && strcmp(now.cluster, before.cluster) != 0 &&
        !seen_came_before(&before, &now))
        tell_other(&before, &now);
    if (keeper == NULL || store->is_newest)
        return STATUS_OK;
    return doubt(store, found == STATUS_NOT_FOUND, err);
}

enum status store_check_fresh(const struct store *store, struct err *err)
{
    struct seen_keeper *keeper = store->remote->lead.seen;
    char text[SEEN_TEXT_BYTES];

    if (keeper == NULL || !seen_keeper_describe(keeper, text))
        return STATUS_OK;
    return err_set(err, STATUS_NOT_FOUND, 0, "etcd has no state, but this server has seen %s",
                   text);
}
