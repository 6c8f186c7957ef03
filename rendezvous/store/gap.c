/* Turns a copy of an earlier state into a state of its own. It gets a new cluster id, by which nodes
 * tell its jobs from those that ran before. Its job and event numbers start above any that were given
 * since the copy was made. Its keys are marked as those of the past. No
 * job of it starts for a whole lease of the server that starts first (rendezvous/core/history.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "rendezvous/core/job.h"
#include "rendezvous/store/internal.h"

#define FAILED "(state = 'restarting' OR stopping = %d)" /* in a row of before the copy */
#define LONGEST_LEASE_MS "(max(%u, " STORE_META_SQL("lease_us") ") + %u) / 1000"

__attribute__((format(printf, 3, 4))) static enum status
execute(struct store *store, struct err *err, const char *format, ...)
{
    char sql[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    return store_execute(store, sql, err);
}

/* Processes of the copy's running jobs may go on under the old cluster id, and use their slots, until
 * the leases of their shims end. These jobs start again after that, as planned: their stop is no failure
 * of the program. A failure that came before it still counts. A job that was being cancelled is ended as
 * cancelled. */
static enum status stop_running(struct store *store, int64_t now_ms, struct err *err)
{
    enum status status = execute(store, err,
                                 "UPDATE main.jobs SET state = 'cancelled', ended_ms = %" PRId64
                                 ", parts = '[]', stopping = 0 WHERE cancel_wanted AND state IN"
                                 " ('starting','running','restarting')",
                                 now_ms);

    if (status == STATUS_OK)
        status = execute(
            store, err,
            "UPDATE main.jobs SET planned = CASE WHEN " FAILED " THEN planned ELSE 1 END,"
            " failed_class = CASE WHEN " FAILED " THEN failed_class ELSE %d END,"
            " preempted_by = 0, state = 'restarting', parts = '[]', stopping = 0,"
            " running_ms = 0, retry_at_ms = %" PRId64 " + " LONGEST_LEASE_MS
            ", reason = 'the state was restored from a backup: it starts again when"
            " the leases of what ran before have ended'"
            " WHERE state IN ('starting','running','restarting')",
            STOP_FAILURE, STOP_FAILURE, FAILURE_PROGRAM, now_ms, LEASE_DEFAULT_US, LEASE_MARGIN_US);
    return status;
}

/* It is drawn, since the same copy may be put back a second time, where nothing tells of the first. */
static uint64_t draw_gap(void)
{
    uint32_t random = 0;

    (void)!getrandom(&random, sizeof random, 0);
    return (uint64_t)STORE_ID_GAP * (1 + random % STORE_ID_GAP_SPAN);
}

/* A longer lease than this state knows of may have been given since, or was seen; the default is the least that is
 * expected. */
enum status store_mark_copy(struct store *store, int64_t now_ms, struct err *err)
{
    const uint64_t seen_us = store->seen.lease_us < DURATION_US_MAX ? store->seen.lease_us : 0;

    return execute(store, err,
                   "INSERT OR REPLACE INTO main.meta SELECT 'copy_ms', %" PRId64
                   " UNION ALL SELECT 'lease_us', max(%u, %" PRIu64
                   ", " STORE_META_SQL("lease_us") ")",
                   now_ms, LEASE_DEFAULT_US, seen_us);
}

enum status store_skip_numbers(struct store *store, const struct store_gap *gap, struct err *err)
{
    const uint64_t skipped = draw_gap();
    enum status status =
        execute(store, err, "INSERT OR REPLACE INTO main.meta VALUES ('keys_lost_ms', %" PRId64 ")",
                gap->now_ms);

    if (status == STATUS_OK)
        status = store_mark_copy(store, gap->now_ms, err);

    if (status == STATUS_OK)
        status = execute(store, err,
                         "INSERT OR REPLACE INTO main.meta SELECT 'job_id_floor', max(%" PRIu64
                         ", " STORE_NEWEST_JOB_SQL ") + %" PRIu64,
                         gap->job_id, skipped);
    if (status == STATUS_OK)
        status =
            execute(store, err,
                    "INSERT INTO main.events SELECT max(%" PRIu64
                    ", coalesce(max(id), 0)) + %" PRIu64 ", %" PRId64 ", 0, 0, %s FROM main.events",
                    gap->event_id, skipped, gap->now_ms, gap->event_sql);
    return status;
}

enum status store_leave_gap(struct store *store, const struct store_gap *gap, struct err *err)
{
    enum status status = execute(
        store, err, "UPDATE main.meta SET value = '%s' WHERE name = 'cluster'", gap->cluster);

    if (status == STATUS_OK)
        status = stop_running(store, gap->now_ms, err);
    return status == STATUS_OK ? store_skip_numbers(store, gap, err) : status;
}

enum status store_skip_jobs(struct store *store, struct err *err)
{
    return execute(store, err,
                   "INSERT OR REPLACE INTO main.meta SELECT 'job_id_floor', " STORE_NEWEST_JOB_SQL
                   " + %" PRIu64,
                   draw_gap());
}

enum status store_begin_history(struct store *store, const struct seen *other, struct err *err)
{
    struct seen now;
    char id[SEEN_ID_BYTES];
    enum status status = store_seen(store, &now, 0, err);

    if (status != STATUS_OK)
        return status;
    if (other != NULL)
        seen_add_lineage(&now, other);
    seen_add_lineage(&now, &now);
    status = store_make_cluster(id, err);
    if (status == STATUS_OK)
        status = execute(store, err,
                         "INSERT OR REPLACE INTO main.meta VALUES ('restore', '%s'), ('lineage', "
                         "'%s')",
                         id, now.lineage);
    return status;
}
