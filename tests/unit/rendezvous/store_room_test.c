/* What room.c does to the file beside SQLite. */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "rendezvous/store/internal.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

/* Another program that reads the file must not take its log away when it ends: it does if our locks on
 * the file are gone. */
TEST(a_reader_leaves_the_log)
{
    struct store *store;
    char path[512], word = 'x';
    int go[2], status = 0;
    pid_t pid;

    (void)snprintf(path, sizeof path, "%s/state.db", test_dir());
    CHECK(pipe2(go, O_CLOEXEC) == 0);
    pid = fork(); /* before SQLite knows the file, as another program's process */
    CHECK(pid >= 0);
    if (pid == 0) {
        sqlite3 *db = NULL;
        bool done = read(go[0], &word, 1) == 1 &&
                    sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK &&
                    sqlite3_exec(db, "SELECT count(*) FROM jobs", NULL, NULL, NULL) == SQLITE_OK;

        _exit(done && sqlite3_close(db) == SQLITE_OK ? 0 : 1);
    }
    store = open_or_fail(test_dir());
    store_begin(store);
    (void)store_write_event(store, 1, 0, 0, "an event");
    store_commit(store);
    CHECK(write(go[1], &word, 1) == 1);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    (void)snprintf(path, sizeof path, "%s/state.db-wal", test_dir());
    CHECK(access(path, F_OK) == 0);
    store_close(&store);
    (void)close(go[0]);
    (void)close(go[1]);
}

/* The blocks of a file, whatever its length. */
static long long blocks_of(const char *name)
{
    char path[512];
    struct stat info;

    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    CHECK(stat(path, &info) == 0);
    return (long long)info.st_blocks * 512;
}

/* The logs of its own job may fill the disk of a private run. */
TEST(a_private_store_reserves_room_too)
{
    struct store *store;
    struct err err;

    CHECK(store_open(&store, test_dir(), false, &err) == STATUS_OK);
    CHECK(blocks_of("state.db") >= 256 << 10);
    CHECK(blocks_of("state.db-wal") >= 512 << 10);
    store_close(&store);
}

static char last_line[1024];

static void keep_line(const char *bytes, size_t byte_count)
{
    (void)snprintf(last_line, sizeof last_line, "%.*s", (int)byte_count, bytes);
}

static void tell(struct store *store, int code)
{
    (void)store;
    _exit(code == STORE_EXIT_CODE && strstr(last_line, "database or disk is full (SQLite 13);") &&
                  strstr(last_line, "errno") == NULL
              ? 0
              : 1);
}

/* SQLite says that the file is full, and the system has said nothing. */
TEST(no_reason_is_given_that_the_system_did_not_give)
{
    const char *dir = test_dir(); /* the child must not make one of its own */
    struct store_disk disk = store_disk_usual;
    int status = 1;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        struct store *store;
        struct err err;
        int64_t pages;

        disk.end = tell;
        log_open("store", LOG_ERROR, false);
        log_use(keep_line);
        if (store_open_on(&store, &disk, dir, false, &err) != STATUS_OK ||
            store_number(store, "PRAGMA max_page_count = 1", &pages, &err) != STATUS_OK)
            _exit(2);
        for (int i = 0; i < 100000; i++) {
            store_begin(store);
            (void)store_write_event(store, i, 0, 0, "an event that takes its room in the file");
            store_commit(store);
        }
        _exit(3);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
}

/* The disk of the state says that it has that much left. */
static uint64_t left_bytes;

static uint64_t tell_left(const char *path)
{
    (void)path;
    return left_bytes;
}

static struct store *open_with_left(uint64_t bytes)
{
    static struct store_disk disk;
    struct store *store;
    struct err err;

    disk = store_disk_usual;
    disk.free_bytes = tell_left;
    left_bytes = bytes;
    CHECK_EQ(store_open_on(&store, &disk, test_dir(), true, &err), STATUS_OK);
    return store;
}

/* A small disk was full and is not any more. It never gets room for a second reserve. */
TEST(what_is_reserved_is_not_wanted_a_second_time)
{
    struct store *store = open_with_left(100 << 20);

    CHECK(!store_is_low(store));
    CHECK(blocks_of("state.db-wal") >= 12 << 20);
    left_bytes = 1 << 20;
    CHECK(store_is_low(store));
    left_bytes = 8 << 20; /* it would say so again with the next block */
    CHECK(store_is_low(store));
    left_bytes = 9 << 20;
    CHECK(!store_is_low(store));
    left_bytes = 1 << 20;
    CHECK(store_is_low(store));
    left_bytes = 9 << 20;
    CHECK(!store_is_low(store));
    store_close(&store);
}

/* Its server was started on a full disk. */
TEST(what_is_not_reserved_yet_is_wanted)
{
    struct store *store = open_with_left(1 << 20);

    CHECK(store_is_low(store));
    CHECK(blocks_of("state.db-wal") < 12 << 20);
    left_bytes = 20 << 20; /* 9, and the reserve of 16, of which the new file may have a part */
    CHECK(store_is_low(store));
    left_bytes = 25 << 20;
    CHECK(!store_is_low(store));
    CHECK(blocks_of("state.db-wal") >= 12 << 20);
    left_bytes = 1 << 20;
    CHECK(store_is_low(store));
    left_bytes = 9 << 20;
    CHECK(!store_is_low(store));
    store_close(&store);
}

TEST_MAIN
