/* Whether state.db is what its server has left: compared with state-seen beside it (seen.h). A copy of the file that was
 * put back, or a log that is lost, looks like a state of its own. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/io/conn.h"
#include "common/log.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/remote_history.h"
#include "rendezvous/store/witness.h"

#define NOTE_US 1000000u
#define PATH_BYTES 4200

static void file_path(const struct store *store, const char *end, char path[PATH_BYTES])
{
    (void)snprintf(path, PATH_BYTES, "%s%s", store->path, end);
}

/* state-seen, beside state.db. */
static void seen_path(const struct store *store, char path[PATH_BYTES])
{
    (void)snprintf(path, PATH_BYTES, "%.*s/" SEEN_FILE_STATE,
                   (int)(strlen(store->path) - strlen("/state.db")), store->path);
}

static bool keeps_seen(const struct store *store)
{
    return store->remote == NULL && store->survives_power && store->disk->seen_write != NULL;
}

/* SQLite removes -shm before -wal. */
static bool is_log_lost(const struct store *store)
{
    char log[PATH_BYTES], index[PATH_BYTES];

    file_path(store, "-wal", log);
    file_path(store, "-shm", index);
    return store->disk->byte_count(store->path) > 0 && store->disk->byte_count(index) >= 0 &&
           store->disk->byte_count(log) < 0;
}

void store_look_at_seen(struct store *store)
{
    char path[PATH_BYTES];
    struct err err;
    enum status status;

    if (!keeps_seen(store))
        return;
    seen_path(store, path);
    store->is_log_lost = is_log_lost(store);
    status = store->disk->seen_read(path, &store->seen, NULL, &err);
    store->has_seen = status == STATUS_OK;
    store->known = store->seen;
    if (status != STATUS_OK && status != STATUS_NOT_FOUND &&
        store->disk->byte_count(store->path) > 0)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "%s: whether %s is an earlier state than that of its last server cannot be told",
                 err.text, store->path);
}

static enum status in_transaction(struct store *store, enum status status, struct err *err)
{
    struct err none;

    if (status == STATUS_OK)
        return store_execute(store, "COMMIT", err);
    (void)store_execute(store, "ROLLBACK", &none);
    return status;
}

static enum status leave_gap(struct store *store, const struct store_gap *gap, struct err *err)
{
    enum status status = store_begin_history(store, store->has_seen ? &store->seen : NULL, err);

    return status == STATUS_OK ? store_skip_numbers(store, gap, err) : status;
}

/* As when a node says it (rendezvous/core/history.h): the cluster id stays, for what runs and is known goes on. */
static enum status put_back(struct store *store, const struct seen *now, const char *who,
                            struct err *err)
{
    const struct seen *before = &store->seen;
    char event[200];
    const struct store_gap gap = {.now_ms = clock_wall_ms(),
                                  .job_id = before->job_id,
                                  .event_id = before->event_id,
                                  .event_sql = event};
    enum status status;

    (void)snprintf(event, sizeof event,
                   "'this server''s state is of the past: it has job %" PRIu64
                   " as its newest, and %" PRIu64 " was given (%s)'",
                   now->job_id, before->job_id, store->is_log_lost ? "state.db-wal is gone" : who);
    status = store_execute(store, "BEGIN IMMEDIATE", err);
    if (status == STATUS_OK)
        status = in_transaction(store, leave_gap(store, &gap, err), err);
    if (status != STATUS_OK)
        return status;
    store_read_values(store);
    store->is_of_past = true;
    if (store->is_log_lost)
        (void)snprintf(store->past_why, sizeof store->past_why,
                       "its state.db-wal is gone, with the newest commits");
    else
        (void)snprintf(store->past_why, sizeof store->past_why,
                       "%s has job %" PRIu64 " and event %" PRIu64 ", and state.db job %" PRIu64
                       " and event %" PRIu64,
                       who, before->job_id, before->event_id, now->job_id, now->event_id);
    log_line(LOG_WARNING, LOG_ABOUT_NONE,
             STORE_FILE_WENT_BACK
             " (%s: job %" PRIu64 ", event %" PRIu64 "; job %" PRIu64 ", event %" PRIu64
             " were seen)%s. What was done since is lost, the next job is %" PRIu64
             ". Better: stop this server, and put the right files back",
             store->path, now->job_id, now->event_id, before->job_id, before->event_id,
             store->is_log_lost
                 ? ": its state.db-wal is gone, with the newest commits"
                 : ", as after a copy that was put back, or without its state.db-wal",
             store_next_job_id(store));
    return STATUS_OK;
}

/* Somebody has put another state here. What this directory has given is not given again. */
static enum status take_other(struct store *store, const struct seen *now, struct err *err)
{
    const struct seen *before = &store->seen;
    char sql[160];

    log_line(LOG_WARNING, LOG_ABOUT_NONE,
             "%s is the state of cluster %s; the last one of this directory was that of cluster %s "
             "(job %" PRIu64 "). Unless somebody has put it there: is it the right one "
             "(--state-dir)?",
             store->path, now->cluster, before->cluster, before->job_id);
    if (before->job_id <= now->job_id)
        return STATUS_OK;
    (void)snprintf(sql, sizeof sql,
                   "INSERT OR REPLACE INTO main.meta VALUES ('job_id_floor', %" PRIu64 ")",
                   before->job_id + STORE_ID_GAP);
    return store_execute(store, sql, err);
}

/* What this boot of the machine knows of the cluster; all 0: nothing. STATUS_BUSY: a copy of the state is in use. */
static enum status ask_witness(struct store *store, struct witness_facts *facts, struct err *why)
{
    struct err err;
    enum status status;

    *facts = (struct witness_facts){.commits = 0};
    if (store->disk->witness == NULL)
        return STATUS_OK;
    status = store->disk->witness(&store->witness, store->cluster, store->path, &err);
    if (status == STATUS_BUSY)
        return err_set(why, status, 0, "%s", err.text);
    if (status == STATUS_OK) {
        if (!witness_get(store->witness, facts))
            *facts = (struct witness_facts){.commits = 0};
        return STATUS_OK;
    }
    log_line(LOG_WARNING, LOG_ABOUT_NONE,
             "%s: at its next start this server cannot know that its state is the newest, and jobs "
             "that wait then start after a lease",
             err.text);
    return STATUS_OK;
}

static void raise_to(uint64_t *number, uint64_t seen)
{
    if (*number < seen)
        *number = seen;
}

/* Whether the directory knows more than the state. */
static bool is_before_seen(const struct store *store, const struct seen *now)
{
    return store->has_seen &&
           (seen_is_past(now, &store->seen) ||
            (seen_is_same(now, &store->seen) && store->seen.event_id > now->event_id));
}

static bool is_before_boot(const struct store *store, const struct seen *now,
                           const struct witness_facts *facts)
{
    return facts->job_id > now->job_id || facts->event_id > now->event_id ||
           (strcmp(facts->history, seen_id(now)) == 0 && facts->commits > store->commits);
}

/* One commit may have been made without being noted: the server was killed in between. A clock that is behind, as in
 * another time namespace, says nothing. */
static bool is_as_the_boot_knows(const struct store *store, const struct seen *now,
                                 const struct witness_facts *facts)
{
    const uint64_t now_us = clock_boot_us();

    return strcmp(facts->history, seen_id(now)) == 0 && store->commits <= facts->commits + 1 &&
           facts->alive_us <= now_us && now_us <= facts->alive_us + WITNESS_PAUSE_US;
}

static enum status compare(struct store *store, const struct witness_facts *facts, struct err *err)
{
    struct seen now;
    enum status status = store_seen(store, &now, 0, err);

    if (status != STATUS_OK)
        return status;
    if (store->is_log_lost || is_before_seen(store, &now) || is_before_boot(store, &now, facts)) {
        const char *who = is_before_seen(store, &now) ? SEEN_FILE_STATE : "the memory of this boot";

        raise_to(&store->seen.job_id, facts->job_id);
        raise_to(&store->seen.event_id, facts->event_id);
        raise_to(&store->seen.lease_us, facts->lease_us);
        return put_back(store, &now, who, err);
    }
    store->is_newest = is_as_the_boot_knows(store, &now, facts);
    if (store->has_seen && !seen_is_same(&now, &store->seen))
        status = take_other(store, &now, err);
    if (status == STATUS_OK && !store->is_newest)
        status = store_mark_copy(store, clock_wall_ms(), err);
    return status;
}

enum status store_check_file(struct store *store, struct err *err)
{
    struct witness_facts facts;
    int64_t commits = 0;
    enum status status = STATUS_OK;

    if (!keeps_seen(store)) {
        store->is_newest =
            store->is_new || !store->survives_power; /* nothing of it is remembered */
        return STATUS_OK;
    }
    status = store_number(store, "SELECT " STORE_META_SQL("commits"), &commits, err);
    store->commits = commits > 0 ? (uint64_t)commits : 0;
    if (status == STATUS_OK)
        status = ask_witness(store, &facts, err);
    store->is_newest = store->is_new;
    if (status == STATUS_OK && !store->is_new && !store->is_wanted_new)
        status = compare(store, &facts, err);
    return status;
}

/* A failed write, on a full disk for example, is told once. */
static void write_seen(struct store *store)
{
    char path[PATH_BYTES];
    struct err err;

    seen_path(store, path);
    store->seen_at_us = clock_boot_us();
    store->has_news = false;
    if (store->disk->seen_write(path, &store->seen, &err) == STATUS_OK) {
        store->is_seen_failed = false;
        return;
    }
    if (!store->is_seen_failed)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "%s: a state.db that is lost or put back may not be noticed at the next start",
                 err.text);
    store->is_seen_failed = true;
}

/* Reads all of it from the database. */
static bool take_values(struct store *store)
{
    const uint64_t lease_us = store->seen.lease_us;
    struct err none;

    if (store_seen(store, &store->seen, 0, &none) != STATUS_OK)
        return false;
    if (store->seen.lease_us < lease_us)
        store->seen.lease_us = lease_us;
    return true;
}

static void tell_witness(struct store *store)
{
    struct witness_facts facts = {.commits = store->commits,
                                  .job_id = store->seen.job_id,
                                  .event_id = store->seen.event_id,
                                  .lease_us = store->seen.lease_us,
                                  .alive_us = clock_boot_us()};

    (void)snprintf(facts.history, sizeof facts.history, "%s", seen_id(&store->seen));
    if (store->witness != NULL)
        witness_set(store->witness, &facts);
}

void store_alive(struct store *store)
{
    if (store->witness != NULL)
        witness_alive(store->witness, clock_boot_us());
}

void store_note_state(struct store *store)
{
    if (!keeps_seen(store) || !take_values(store))
        return;
    tell_witness(store);
    write_seen(store);
}

void store_note_commit(struct store *store)
{
    if (!keeps_seen(store))
        return;
    tell_witness(store);
    if (store->has_news || clock_boot_us() >= store->seen_at_us + NOTE_US)
        write_seen(store);
}
