/* Drains in the store, and the schema that had none. */
#include <sqlite3.h>
#include <stdio.h>

#include "rendezvous/store.h"
#include "tests/lib/test.h"

static struct store *open_or_fail(const char *dir)
{
    struct store *store = NULL;
    struct err err = {0};

    if (store_open(&store, dir, true, &err) != STATUS_OK)
        FAIL("store_open: %s", err.text);
    return store;
}

static void execute(const char *sql)
{
    char path[512];
    sqlite3 *db;

    (void)snprintf(path, sizeof path, "%s/state.db", test_dir());
    CHECK_EQ(sqlite3_open(path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(db);
}

TEST(drains_are_kept)
{
    const struct rdzv_drain all[] = {{.node = "gpu1",
                                      .slot = RDZV_WHOLE_NODE,
                                      .user = "ann",
                                      .reason = "fan \xc3\xa9",
                                      .at_ms = 5},
                                     {.node = "gpu1", .slot = 0, .user = "bob", .reason = "x"}};
    struct store *store = open_or_fail(test_dir());
    struct rdzv_drain found[4];

    store_begin(store);
    store_write_drains(store, all, 2);
    store_write_drains(store, all, 2); /* in place of the first */
    store_close(&store);
    store = open_or_fail(test_dir());
    CHECK_EQ(store_drains(store, found, 1), 1);
    CHECK_EQ(store_drains(store, found, 4), 2);
    CHECK_EQ(found[0].slot, 0);
    CHECK_STR(found[1].node, "gpu1");
    CHECK_STR(found[1].user, "ann");
    CHECK_STR(found[1].reason, "fan \xc3\xa9");
    CHECK_EQ(found[1].slot, RDZV_WHOLE_NODE);
    CHECK_EQ(found[1].at_ms, 5);
    store_begin(store);
    store_write_drains(store, all, 0);
    CHECK_EQ(store_drains(store, found, 4), 0);
    store_close(&store);
}

TEST(the_version_before_is_brought_up)
{
    struct store *store = open_or_fail(test_dir());
    struct rdzv_drain found[1];

    store_close(&store);
    execute("DROP TABLE drains");
    execute("PRAGMA user_version = 1");
    store = open_or_fail(test_dir());
    CHECK_EQ(store_drains(store, found, 1), 0);
    store_close(&store);
    store = open_or_fail(test_dir());
    store_close(&store);
}

TEST_MAIN
