/* A state.db with rows that nobody of ours wrote, or with damaged bytes: the store opens it or says why
 * not, everything in it can be read, a server's core takes every job that has not ended, and what the
 * core makes of it can be written back. Nothing crashes; STORE_EXIT_CODE is an answer too.
 *
 * An input is a program (program.h): first how the file is changed, then by what. */
#include <setjmp.h>
#include <string.h>

#include "common/log.h"
#include "rendezvous/store/internal.h"
#include "tests/fuzz/program.h"
#include "tests/fuzz/small_core.h"
#include "tests/lib/disk_memory.h"
#include "tests/lib/store_model.h"

#define CHANGES_MAX 24u
#define COLUMNS_MAX 160u

static const char dir[] = "/state";
static const struct store_viewer everyone = {.sees_all = true};

static struct {
    struct store *store;
    jmp_buf ended;
    char columns[COLUMNS_MAX][2][64]; /* table, column */
    uint32_t column_count;
    struct rdzv *core;
    struct rdzv_actions actions;
} world;

void fuzz_corpus(fuzz_add *add)
{
    program_corpus(add, 200); /* each opens stores */
}

static void on_end(struct store *store, int code)
{
    FUZZ_CHECK(code == STORE_EXIT_CODE);
    disk_bury(store);
    longjmp(world.ended, 1);
}

static struct store *open_store(void)
{
    struct store *store = NULL;
    struct err err = {.text = ""};
    enum status status = store_open_on(&store, disk_table(on_end), dir, false, &err);

    FUZZ_CHECK((status == STATUS_OK) == (store != NULL));
    FUZZ_CHECK(status == STATUS_OK || err.text[0] != '\0');
    return store;
}

/* -- the file that is changed ------------------------------------------------------------------ */

static void take_columns(struct store *store)
{
    sqlite3_stmt *stmt;

    FUZZ_CHECK(sqlite3_prepare_v2(store->db,
                                  "SELECT m.name, p.name FROM sqlite_schema m JOIN"
                                  " pragma_table_info(m.name) p WHERE m.type = 'table'"
                                  " AND m.name <> 'reserve'",
                                  -1, &stmt, NULL) == SQLITE_OK);
    while (sqlite3_step(stmt) == SQLITE_ROW && world.column_count < COLUMNS_MAX) {
        for (int i = 0; i < 2; i++)
            (void)snprintf(world.columns[world.column_count][i], 64, "%s",
                           (const char *)sqlite3_column_text(stmt, i));
        world.column_count++;
    }
    (void)sqlite3_finalize(stmt);
}

/* Some jobs in every state, with ranks, events, drains and principals. */
static void make_template(void)
{
    struct model_random random = {.state = 3};
    struct model model;

    if (world.column_count > 0)
        return;
    log_open("fuzz", (enum log_level)(LOG_ERROR + 1), false);
    disk_init(1, 0);
    FUZZ_CHECK(setjmp(world.ended) == 0);
    world.store = open_store();
    FUZZ_CHECK(world.store != NULL);
    model_init(&model);
    for (uint32_t i = 0; i < 60; i++) {
        store_begin(world.store);
        model_change(&model, &random, world.store, false);
        store_commit(world.store);
    }
    take_columns(world.store);
    store_close(&world.store);
    disk_power_on(DISK_REST_ALL);
    disk_save();
}

static const char parts_a[] = "[{\"node\":\"node0\",\"rank_base\":4294967295,\"local_count\":64,"
                              "\"slot_mask\":\"1\"}]";
static const char parts_b[] = "[{\"node\":\"node1\",\"rank_base\":0,\"local_count\":2,"
                              "\"slot_mask\":\"18446744073709551615\"}]";

static void bind_value(struct program *program, sqlite3_stmt *stmt)
{
    static const int64_t numbers[] = {0,         1,         -1,         2,          INT32_MAX,
                                      INT32_MIN, INT64_MAX, INT64_MIN,  UINT32_MAX, 65535,
                                      4096,      32768,     4294967296, 64,         1000};
    static const char *const texts[] = {
        "",      "running", "queued", "starting", "restarting", "[]",           "{}",    "[{}]",
        "[1,2]", "null",    "node0",  "failed",   "{\"a\":1}",  "[\"x\",null]", parts_a, parts_b};
    uint32_t kind = program_below(program, 8), count;
    char bytes[256];

    if (kind < 3) {
        (void)sqlite3_bind_int64(stmt, 1, numbers[program_below(program, 15)]);
    } else if (kind < 5) {
        (void)sqlite3_bind_text(stmt, 1, texts[program_below(program, 16)], -1, SQLITE_STATIC);
    } else if (kind == 5) {
        (void)sqlite3_bind_double(stmt, 1, program_below(program, 2) == 0 ? 1e308 : -0.5);
    } else {
        count = program_byte(program);
        for (uint32_t i = 0; i < count; i++)
            bytes[i] = (char)program_byte(program);
        if (kind == 6)
            (void)sqlite3_bind_text(stmt, 1, bytes, (int)count, SQLITE_TRANSIENT);
        else
            (void)sqlite3_bind_blob(stmt, 1, bytes, (int)count, SQLITE_TRANSIENT);
    }
}

/* Another program writes. */
static void change_rows(struct program *program)
{
    sqlite3 *db = NULL;
    char sql[256];

    FUZZ_CHECK(sqlite3_open_v2("/state/state.db", &db, SQLITE_OPEN_READWRITE,
                               disk_table(on_end)->vfs) == SQLITE_OK);
    for (uint32_t i = 1 + program_below(program, CHANGES_MAX); i > 0; i--) {
        uint32_t column = program_byte(program) % world.column_count;
        uint32_t offset = program_byte(program);
        sqlite3_stmt *stmt = NULL;
        const char *table = world.columns[column][0], *name = world.columns[column][1];

        if (offset >= 128) /* one row, else all */
            (void)snprintf(sql, sizeof sql,
                           "UPDATE OR IGNORE %s SET %s = ?1 WHERE %s = (SELECT %s FROM %s LIMIT 1"
                           " OFFSET %u)",
                           table, name, name, name, table, offset - 128);
        else
            (void)snprintf(sql, sizeof sql, "UPDATE OR IGNORE %s SET %s = ?1", table, name);
        if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK) {
            bind_value(program, stmt);
            (void)sqlite3_step(stmt);
        }
        (void)sqlite3_finalize(stmt);
    }
    (void)sqlite3_close(db);
}

static void change_bytes(struct program *program)
{
    struct disk_file *file = disk_file(disk_find("/state/state.db"));

    for (uint32_t i = 1 + program_below(program, CHANGES_MAX); i > 0; i--) {
        uint64_t at = program_byte(program);

        at = (at << 8 | program_byte(program)) << 8 | program_byte(program);
        file->cache[at % file->cache_bytes] = (uint8_t)program_byte(program);
    }
    if (program_below(program, 8) == 0)
        (void)disk_truncate(file, file->cache_bytes / 256 * program_byte(program));
}

/* -- what a server does with it ---------------------------------------------------------------- */

static void see_job(const struct rdzv_record *record, void *context)
{
    uint32_t *count = context;
    struct part_job shown;

    rdzv_summary(record, &shown);
    (*count)++;
}

static void see_principal(const struct store_principal *principal, void *context)
{
    uint32_t *count = context;

    FUZZ_CHECK(principal->secret_count >= 1 &&
               principal->secret_count <= SECRETS_PER_PRINCIPAL_MAX);
    (*count)++;
}

static void read_all(struct store *store)
{
    struct part_event events[32];
    struct part_job_rank ranks[32];
    struct part_failure failures[FAILURES_KEPT_MAX];
    struct part_failed_rank failed_ranks[4];
    struct arena arena = {0};
    struct store_spec spec;
    uint32_t count = 0;
    uint64_t job_id;

    store_list(store, everyone, 0, 1000, see_job, &count);
    (void)store_principals(store, see_principal, &count);
    for (uint64_t id = 0; id < 12; id++) {
        (void)store_spec(store, id, true, &arena, &spec);
        for (uint32_t generation = 0; generation < 4; generation++)
            FUZZ_CHECK(store_ranks(store, id, generation, 0, &arena, ranks, 32) <= 32);
        FUZZ_CHECK(store_failures(store, id, &arena, failures) <= FAILURES_KEPT_MAX);
        FUZZ_CHECK(store_failed_ranks(store, id, 1, &arena, failed_ranks, 4) <= 4);
        FUZZ_CHECK(store_events(store, everyone, id, 0, 32, &arena, events) <= 32);
    }
    (void)store_find_job(store, "@last", everyone);
    (void)store_find_job(store, "job-3", everyone);
    (void)store_find_request(store, "00000000000000000000000000000003", "user0", &job_id);
    free(store_staged(store, "user0", &(uint32_t){0}));
    arena_reset(&arena);
}

static void step(struct store *store, struct rdzv_event event)
{
    event.now_us = 100000000;
    event.wall_ms = INT64_C(1700000000000);
    rdzv_step(world.core, &event, &world.actions);
    rdzv_check(world.core);
    for (uint32_t i = 0; i < world.actions.count; i++)
        if (world.actions.items[i].type == RDZV_PERSIST) {
            store_begin(store);
            store_write_job(store, rdzv_job_record(world.core, world.actions.items[i].job_id));
        }
    store_commit(store);
}

/* As rendezvous/server/listen.c does at its start. */
static void restore(struct store *store)
{
    struct rdzv_drain drains[8];
    struct rdzv_hold hold, before = {.node = ""};
    struct arena arena = {0};
    struct rdzv_record record;
    uint64_t ids[16], last_id = 0, next_id;
    uint32_t count = store_drains(store, drains, 8);

    world.core = small_core_start();
    for (uint32_t i = 0; i < count; i++)
        step(store, (struct rdzv_event){.type = RDZV_EVENT_RESTORE_DRAIN, .drain = &drains[i]});
    while (store_hold_after(store, before.node, &hold) && strcmp(hold.node, before.node) > 0) {
        step(store, (struct rdzv_event){.type = RDZV_EVENT_RESTORE_HOLD, .hold = &hold});
        before = hold;
    }
    while ((count = store_active_ids(store, last_id, ids, 16)) > 0) {
        for (uint32_t i = 0; i < count; i++) {
            FUZZ_CHECK(ids[i] > last_id);
            last_id = ids[i];
            if (store_get_job(store, ids[i], &arena, &record))
                step(store, (struct rdzv_event){
                                .type = RDZV_EVENT_RESTORE, .job_id = ids[i], .record = &record});
            arena_reset(&arena);
        }
    }
    next_id = store_next_job_id(store);
    step(store, (struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = next_id});
    for (uint32_t i = 0; i < 4; i++)
        step(store, (struct rdzv_event){.type = RDZV_EVENT_TICK});
}

static void live(void)
{
    if (setjmp(world.ended) != 0)
        return;
    world.store = open_store();
    if (world.store == NULL)
        return;
    read_all(world.store);
    restore(world.store);
    read_all(world.store);
    store_close(&world.store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    struct program program = {.bytes = data, .byte_count = byte_count};

    make_template();
    disk_restore(1);
    if (program_below(&program, 4) == 0)
        change_bytes(&program);
    else
        change_rows(&program);
    live();
    live(); /* what the first one made of it can be read too */
    return 0;
}
