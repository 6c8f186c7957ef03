/* A state.db and a state.db-wal of different moments, as when one of them was put back alone. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/store/store.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

static const char *path_of(const char *folder, const char *name)
{
    static char paths[2][512];
    static uint32_t used;
    char *path = paths[used++ % 2];

    (void)snprintf(path, sizeof paths[0], "%s/%s%s", test_dir(), folder, name);
    return path;
}

static void copy_file(const char *from, const char *to)
{
    static uint8_t bytes[16u << 20];
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    const ssize_t count = fd < 0 ? 0 : read(fd, bytes, sizeof bytes);

    CHECK(fd < 0 || (count >= 0 && (size_t)count < sizeof bytes));
    (void)close(fd);
    if (fd < 0)
        return; /* there is no log then */
    fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, bytes, (size_t)count) == count);
    (void)close(fd);
}

static void write_one(struct store *store, uint64_t id, int64_t ended_ms)
{
    const struct rdzv_record record = {.job_id = id,
                                       .name = "job",
                                       .user = "ann",
                                       .nodes = 1,
                                       .nproc_per_node = 1,
                                       .failed_rank = -1,
                                       .ended_ms = ended_ms,
                                       .state = JOB_QUEUED};

    store_begin(store);
    store_write_job(store, &record);
    store_commit(store);
}

/* What the folder has now, as somebody would copy it while the server runs. */
static void keep(const char *folder)
{
    CHECK_EQ(mkdir(path_of(folder, ""), 0700), 0);
    copy_file(path_of("", "state.db"), path_of(folder, "/state.db"));
    copy_file(path_of("", "state.db-wal"), path_of(folder, "/state.db-wal"));
}

/* The folders a to d: moments of one state, in order. */
static void make_moments(void)
{
    struct store *store = open_or_fail(test_dir());

    for (uint64_t id = 1; id <= 12; id++)
        write_one(store, id, 0);
    keep("a");
    execute("PRAGMA wal_checkpoint(TRUNCATE)");
    for (uint64_t id = 1; id <= 4; id++)
        write_one(store, id, 1000);
    keep("b");
    execute(
        "PRAGMA wal_checkpoint(PASSIVE)"); /* the log stays, and begins anew with the next commit */
    keep("c");
    for (uint64_t id = 5; id <= 12; id++)
        write_one(store, id, 1000);
    keep("d");
    store_close(&store);
}

/* Opens a folder with the file of one moment and the log of another. */
static enum status open_pair(const char *file, const char *log, struct store **store,
                             struct err *err)
{
    const char *dir = path_of("pair", "");

    (void)forget_boot();
    test_remove_tree(dir);
    CHECK_EQ(mkdir(dir, 0700), 0);
    copy_file(path_of(file, "/state.db"), path_of("pair", "/state.db"));
    copy_file(path_of(log, "/state.db-wal"), path_of("pair", "/state.db-wal"));
    return store_open(store, path_of("pair", ""), true, err);
}

TEST(each_moment_is_a_state)
{
    static const char *const moments[] = {"a", "b", "c", "d"};
    static const uint32_t ended[] = {0, 4, 4, 12};

    make_moments();
    for (uint32_t i = 0; i < 4; i++) {
        struct store *store = NULL;
        struct arena arena = {0};
        struct rdzv_record record;
        uint32_t count = 0;
        struct err err = {.text = ""};

        if (open_pair(moments[i], moments[i], &store, &err) != STATUS_OK)
            FAIL("%s: %s", moments[i], err.text);
        for (uint64_t id = 1; id <= 12; id++) {
            CHECK(store_get_job(store, id, &arena, &record));
            count += record.ended_ms == 1000;
        }
        CHECK_EQ(count, ended[i]);
        arena_reset(&arena);
        store_close(&store);
    }
}

TEST(a_file_and_a_log_of_different_moments_are_refused)
{
    static const char *const pairs[][2] = {{"a", "d"}, {"b", "d"}, {"c", "a"}, {"d", "a"}};
    struct stat before, after;

    make_moments();
    for (uint32_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct store *store = NULL;
        struct err err = {.text = ""};

        CHECK_EQ(stat(path_of(pairs[i][1], "/state.db-wal"), &before), 0);
        if (open_pair(pairs[i][0], pairs[i][1], &store, &err) != STATUS_REFUSED)
            FAIL("the file of %s, the log of %s: %s", pairs[i][0], pairs[i][1], err.text);
        if (strstr(err.text, "state.db and its -wal do not belong together") == NULL ||
            strstr(err.text, "move -wal and -shm away to use state.db alone") == NULL)
            FAIL("%s", err.text);
        CHECK_EQ(stat(path_of("pair", "/state.db-wal"), &after), 0);
        CHECK_EQ(after.st_size, before.st_size);
    }
}

/* What the refusal advises. */
TEST(the_file_alone_is_a_state)
{
    struct store *store = NULL;
    struct err err;

    make_moments();
    CHECK_EQ(open_pair("b", "d", &store, &err), STATUS_REFUSED);
    CHECK_EQ(unlink(path_of("pair", "/state.db-wal")), 0);
    CHECK_EQ(store_open(&store, path_of("pair", ""), true, &err), STATUS_OK);
    CHECK_EQ(store_next_job_id(store), 13);
    store_close(&store);
}

TEST_MAIN
