/* What room.c does to the file beside SQLite. */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/store/store.h"
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

TEST_MAIN
