/* Removes jobs that ended long ago, in small pieces so that the server's loop is never blocked for
 * long. */
#include <assert.h>

#include "rendezvous/store/internal.h"

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

/* Finds jobs to remove, from `*after_id` on, and advances it. Returns how many. */
static uint32_t find_ended(struct store *store, int64_t before_ms, uint64_t *after_id,
                           bool *is_at_end, uint64_t ids[STORE_EXPIRE_MAX])
{
    sqlite3_stmt *stmt = store_use(store, STORE_JOB_ENDED);
    struct array array = {0};
    uint32_t count = 0, seen = 0;

    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)*after_id);
    (void)sqlite3_bind_int64(stmt, 2, STORE_EXPIRE_LOOK);
    while (count < STORE_EXPIRE_MAX && store_row(store, stmt, "read")) {
        int64_t ended_ms = sqlite3_column_int64(stmt, 1);
        uint64_t array_job = (uint64_t)sqlite3_column_int64(stmt, 2);

        seen++;
        *after_id = (uint64_t)sqlite3_column_int64(stmt, 0);
        if (ended_ms > 0 && ended_ms < before_ms &&
            !is_of_kept_array(store, array_job, before_ms, &array))
            ids[count++] = *after_id;
    }
    (void)sqlite3_reset(stmt);
    *is_at_end = count < STORE_EXPIRE_MAX && seen < STORE_EXPIRE_LOOK;
    return count;
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

uint32_t store_expire(struct store *store, int64_t before_ms, uint64_t *after_id, bool *is_at_end)
{
    uint64_t ids[STORE_EXPIRE_MAX];
    uint32_t count;

    assert(store->in_transaction);
    count = find_ended(store, before_ms, after_id, is_at_end, ids);
    for (uint32_t i = 0; i < count; i++)
        remove_job(store, ids[i]);
    return count;
}
