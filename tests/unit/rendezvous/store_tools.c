#include "tests/unit/rendezvous/store_tools.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/test.h"

struct store *open_or_fail(const char *dir)
{
    struct store *store = NULL;
    struct err err = {0};

    if (store_open(&store, dir, true, &err) != STATUS_OK)
        FAIL("store_open: %s", err.text);
    return store;
}

static char memory[64];

static void remove_memory(void)
{
    if (memory[0] != '\0')
        test_remove_tree(memory);
    memory[0] = '\0';
}

const char *forget_boot(void)
{
    static bool is_set;

    if (!is_set)
        CHECK_EQ(atexit(remove_memory), 0);
    is_set = true;
    remove_memory();
    (void)snprintf(memory, sizeof memory, "/dev/shm/ddp-test-XXXXXX");
    CHECK(mkdtemp(memory) != NULL);
    CHECK_EQ(setenv("RUNTIME_DIRECTORY", memory, 1), 0);
    return memory;
}

void execute(const char *sql)
{
    char path[512];
    sqlite3 *db;

    (void)snprintf(path, sizeof path, "%s/state.db", test_dir());
    CHECK_EQ(sqlite3_open(path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(db);
}
