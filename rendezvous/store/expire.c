/* Removes jobs that ended long ago, in small pieces so that the server's loop is never blocked for
 * long. */
#include <assert.h>

#include "rendezvous/store/internal.h"

#define TRIM_MAX 8u /* large specs that one piece shortens, at most */

/* The jobs of an array stay until all of them may go, so that what is asked of the array is not
 * answered for a part of it. They follow one another: `array` is the one that was asked for last. */
struct array {
    uint64_t id;
    bool is_kept;
};

static bool is_of_kept_array(struct store *store, uint64_t array_job, int64_t before_ms,
                             struct array *array)
{
    sqlite3_stmt *stmt;

    if (array_job == 0)
        return false;
    if (array->id == array_job)
        return array->is_kept;
    stmt = store_use(store, STORE_ARRAY_KEPT);
    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)array_job);
    (void)sqlite3_bind_int64(stmt, 2, before_ms);
    *array = (struct array){.id = array_job, .is_kept = store_row(store, stmt, "read")};
    (void)sqlite3_reset(stmt);
    return array->is_kept;
}

/* A job that ended long ago, and the ids that are removed or kept with it. */
struct old_jobs {
    uint32_t count;
    uint64_t ids[STORE_EXPIRE_MAX];
    struct rdzv_ids with[STORE_EXPIRE_MAX];
};

static void add_old(struct old_jobs *old, uint64_t id, uint64_t array_job, uint64_t array_count)
{
    struct rdzv_ids *with = &old->with[old->count];

    old->ids[old->count++] = id;
    *with = (struct rdzv_ids){.first = id, .last = id};
    if (array_job != 0 && array_count != 0)
        *with = (struct rdzv_ids){.first = array_job, .last = array_job + array_count - 1};
}

/* Shortens a large spec that an earlier version of the server has kept whole. */
static bool trim(struct store *store, uint64_t id, uint64_t array_job, uint64_t array_count)
{
    struct rdzv_ids jobs = {.first = id, .last = id};

    if (array_job != 0 && array_count != 0)
        jobs = (struct rdzv_ids){.first = array_job, .last = array_job + array_count - 1};
    return store_trim_spec(store, jobs, false);
}

/* Finds jobs that may be removed, from `*after_id` on, and advances it. True: there are no more. */
static bool find_ended(struct store *store, int64_t before_ms, uint64_t *after_id,
                       struct old_jobs *old)
{
    sqlite3_stmt *stmt = store_use(store, STORE_JOB_ENDED);
    struct array array = {0};
    uint32_t seen = 0, trimmed = 0;

    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)*after_id);
    (void)sqlite3_bind_int64(stmt, 2, STORE_EXPIRE_LOOK);
    while (old->count < STORE_EXPIRE_MAX && trimmed < TRIM_MAX && store_row(store, stmt, "read")) {
        int64_t ended_ms = sqlite3_column_int64(stmt, 1);
        uint64_t array_job = (uint64_t)sqlite3_column_int64(stmt, 2);

        seen++;
        *after_id = (uint64_t)sqlite3_column_int64(stmt, 0);
        if (ended_ms > 0 && ended_ms < before_ms &&
            !is_of_kept_array(store, array_job, before_ms, &array))
            add_old(old, *after_id, array_job, (uint64_t)sqlite3_column_int64(stmt, 3));
        else if (ended_ms > 0)
            trimmed += trim(store, *after_id, array_job, (uint64_t)sqlite3_column_int64(stmt, 3));
    }
    (void)sqlite3_reset(stmt);
    return old->count < STORE_EXPIRE_MAX && trimmed < TRIM_MAX && seen < STORE_EXPIRE_LOOK;
}

static void remove_job(struct store *store, uint64_t job_id)
{
    static const enum store_statement drops[] = {STORE_REQUEST_DROP,   STORE_SPEC_DROP,
                                                 STORE_RANK_DROP,      STORE_FAILURE_DROP,
                                                 STORE_EVENT_DROP_JOB, STORE_JOB_DROP};

    for (size_t i = 0; i < sizeof drops / sizeof drops[0]; i++) {
        sqlite3_stmt *stmt = store_use(store, drops[i]);

        (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)job_id);
        store_run(store, stmt, "remove an old job from");
    }
}

uint32_t store_expire(struct store *store, int64_t before_ms, store_mark *mark, const void *context,
                      uint64_t *after_id, bool *is_at_end)
{
    struct old_jobs old = {0};
    uint32_t count = 0;

    assert(store->in_transaction);
    *is_at_end = find_ended(store, before_ms, after_id, &old);
    if (mark != NULL && old.count > 0)
        mark(context, old.with, old.count);
    for (uint32_t i = 0; i < old.count; i++) {
        if (old.with[i].is_awaited)
            continue;
        remove_job(store, old.ids[i]);
        count++;
    }
    return count;
}
