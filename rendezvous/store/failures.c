/* Rows of failures: how the generations of a job failed, and which ranks. The columns are the fields of
 * PART_FAILURE. */
#include <assert.h>
#include <string.h>

#include "common/utf8.h"
#include "rendezvous/store/internal.h"

#define BIND_INT(name) sqlite3_bind_int64(stmt, ++column, (sqlite3_int64)failure->name)
#define BIND_U32(name) BIND_INT(name)
#define BIND_I32(name) BIND_INT(name)
#define BIND_U64(name) BIND_INT(name)
#define BIND_I64(name) BIND_INT(name)
#define BIND_BOOL(name) BIND_INT(name)
#define BIND_TEXT(name)                                                                            \
    sqlite3_bind_text(stmt, ++column, failure->name != NULL ? failure->name : "", -1,              \
                      SQLITE_TRANSIENT)
#define BIND_LINE(name) BIND_TEXT(name)
#define BIND(kind, name, min, max) (void)BIND_##kind(name);
#define BIND_CLASS(name, tag, TABLE)                                                               \
    (void)sqlite3_bind_text(stmt, ++column, tag##_name(failure->name), -1, SQLITE_STATIC);

static void write_row(struct store *store, uint64_t job_id, const struct part_failure *failure)
{
    sqlite3_stmt *stmt = store_use(store, STORE_FAILURE_WRITE);
    int column = 0;

    (void)sqlite3_bind_int64(stmt, ++column, (sqlite3_int64)job_id);
    PART_FAILURE(BIND, BIND_CLASS, )
    store_run(store, stmt, "write a failure to");
    (void)sqlite3_clear_bindings(stmt);
    stmt = store_use(store, STORE_FAILURE_TRIM);
    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)job_id);
    (void)sqlite3_bind_int64(stmt, 2, FAILURES_KEPT_MAX - FAILURES_FIRST_MAX);
    (void)sqlite3_bind_int64(stmt, 3, FAILURES_FIRST_MAX);
    store_run(store, stmt, "drop old failures of");
}

/* Clamps a number: with one that no message can carry, none of the job's failures could be sent. */
static int64_t within(int64_t value, int64_t min, uint64_t max)
{
    if (value < min)
        return min;
    return value > 0 && (uint64_t)value > max ? (int64_t)max : value;
}

/* A text that a message can carry; never NULL. */
static const char *take_text(sqlite3_stmt *stmt, int column, struct arena *arena, size_t byte_max,
                             bool is_line)
{
    const char *text = store_text(stmt, column);
    size_t byte_count = strlen(text);
    bool is_fit = byte_count <= byte_max && utf8_is_valid(text, byte_count);
    char *kept;

    for (size_t i = 0; is_fit && is_line && i < byte_count; i++)
        is_fit = !utf8_is_control(text + i, byte_count - i);
    kept = is_fit ? arena_text(arena, text, byte_count) : arena_alloc(arena, byte_max + 9);
    if (kept != NULL && !is_fit)
        utf8_printable(text, byte_count, kept, byte_max + 1 < 8 ? 8 : byte_max + 1);
    return kept != NULL ? kept : "";
}

static enum failure_class read_class(const char *name)
{
    enum failure_class class;

    return failure_class_parse(name, &class) ? class : FAILURE_UNSAID;
}

#define READ_INT(name, min, max)                                                                   \
    failure->name =                                                                                \
        (__typeof__(failure->name))within(sqlite3_column_int64(stmt, column++), min, max)
#define READ_U32(name, min, max) READ_INT(name, min, max)
#define READ_I32(name, min, max) READ_INT(name, min, max)
#define READ_U64(name, min, max) READ_INT(name, min, max)
#define READ_I64(name, min, max) READ_INT(name, min, max)
#define READ_BOOL(name, min, max) failure->name = sqlite3_column_int64(stmt, column++) != 0
#define READ_LINE(name, min, max) failure->name = take_text(stmt, column++, arena, max, true)
#define READ_TEXT(name, min, max) failure->name = take_text(stmt, column++, arena, max, false)
#define READ(kind, name, min, max) READ_##kind(name, min, max);
#define READ_CLASS(name, tag, TABLE) failure->name = read_class(store_text(stmt, column++));

static void read_row(sqlite3_stmt *stmt, struct arena *arena, struct part_failure *failure)
{
    int column = 1; /* the first column is there so that the list can begin with a comma */

    PART_FAILURE(READ, READ_CLASS, )
}

static uint32_t list(struct store *store, uint64_t job_id, uint32_t first, uint32_t last,
                     struct arena *arena, struct part_failure *failures)
{
    sqlite3_stmt *stmt = store_use(store, STORE_FAILURE_LIST);
    uint32_t count = 0;

    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)job_id);
    (void)sqlite3_bind_int64(stmt, 2, first);
    (void)sqlite3_bind_int64(stmt, 3, last);
    while (count < FAILURES_KEPT_MAX && store_row(store, stmt, "read the failures of"))
        read_row(stmt, arena, &failures[count++]);
    (void)sqlite3_reset(stmt);
    return count;
}

uint32_t store_failures(struct store *store, uint64_t job_id, struct arena *arena,
                        struct part_failure failures[FAILURES_KEPT_MAX])
{
    return list(store, job_id, 0, GENERATION_MAX, arena, failures);
}

void store_write_failure(struct store *store, uint64_t job_id, const struct part_failure *failure,
                         bool is_end_alone)
{
    struct part_failure before[FAILURES_KEPT_MAX], now = *failure;
    struct arena arena = {0};

    assert(store->in_transaction && failure->generation > 0);
    if (store->is_low)
        return;
    if (list(store, job_id, now.generation, now.generation, &arena, before) == 1) {
        if (is_end_alone) {
            now = before[0];
            now.class = failure->class;
            now.failed_too = failure->failed_too;
            now.left = failure->left;
            now.left_rank = failure->left_rank;
            now.stopped = failure->stopped;
            now.lost = failure->lost;
            now.decision = failure->decision;
        }
        now.error = now.error != NULL ? now.error : before[0].error;
        now.stacks = now.stacks != NULL ? now.stacks : before[0].stacks;
        now.core = now.core != NULL ? now.core : before[0].core;
    }
    write_row(store, job_id, &now);
    arena_reset(&arena);
}

uint32_t store_failed_ranks(struct store *store, uint64_t job_id, uint32_t generation,
                            struct arena *arena, struct part_failed_rank *ranks, uint32_t max)
{
    sqlite3_stmt *stmt = store_use(store, STORE_RANK_FAILED);
    int64_t first_ms = 0;
    uint32_t count = 0;

    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)job_id);
    (void)sqlite3_bind_int64(stmt, 2, generation);
    (void)sqlite3_bind_int64(stmt, 3, max);
    while (count < max && store_row(store, stmt, "read the failed ranks of")) {
        int64_t failed_ms = sqlite3_column_int64(stmt, 4);

        if (count == 0)
            first_ms = failed_ms;
        ranks[count++] = (struct part_failed_rank){
            .rank = (uint32_t)within(sqlite3_column_int64(stmt, 0), 0, RANKS_PER_JOB_MAX - 1),
            .node = take_text(stmt, 1, arena, NODE_NAME_BYTES_MAX - 1, true),
            .exit_code = (int32_t)within(sqlite3_column_int64(stmt, 2), 0, 255),
            .signal = (uint32_t)within(sqlite3_column_int64(stmt, 3), 0, 64),
            .after_us = failed_ms > 0 && first_ms > 0
                            ? within(failed_ms - first_ms, 0, INT64_MAX / 1000) * 1000
                            : -1,
        };
    }
    (void)sqlite3_reset(stmt);
    return count;
}
