/* A state.db with a page of zeros, as a disk may leave it: what concerns single jobs is given up, all else refuses the start. */
#include <fcntl.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/store/backup.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/store.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

#define PAGE 4096u
#define JOBS 60u
#define LONG 700u /* bytes of a command: a page has a few of them */

static const char *path_of(const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    return path;
}

static bool is_there(const char *name)
{
    struct stat info;

    return stat(path_of(name), &info) == 0;
}

static void write_one(struct store *store, uint64_t id)
{
    static char word[LONG + 1];
    const char *const argv[] = {"train", word};
    char request_id[REQUEST_ID_CHARS + 1];
    struct rdzv_record record = {.job_id = id,
                                 .name = "job",
                                 .user = "ann",
                                 .nodes = 1,
                                 .nproc_per_node = 1,
                                 .failed_rank = -1,
                                 .state = JOB_QUEUED};
    const struct msg_submit submit = {
        .request_id = request_id, .cwd = "/here", .array = "", .argv = {argv, 2}};

    memset(word, 'x', LONG);
    (void)snprintf(request_id, sizeof request_id, "%032llu", (unsigned long long)id);
    store_begin(store);
    store_write_job(store, &record);
    store_write_spec(store, id, "ann", &submit);
    (void)store_write_event(store, 1, id, 0,
                            "submitted, and some words more, so that a page is soon full");
    store_commit(store);
}

static void make_state(void)
{
    struct store *store = open_or_fail(test_dir());

    for (uint64_t id = 1; id <= JOBS; id++)
        write_one(store, id);
    store_close(&store);
}

static uint32_t number(const uint8_t *bytes, uint32_t count)
{
    uint32_t value = 0;

    for (uint32_t i = 0; i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

static uint32_t root_of(const char *name)
{
    char sql[128];
    sqlite3 *db;
    sqlite3_stmt *stmt;
    uint32_t page;

    (void)snprintf(sql, sizeof sql, "SELECT rootpage FROM sqlite_schema WHERE name = '%s'", name);
    CHECK_EQ(sqlite3_open(path_of("state.db"), &db), SQLITE_OK);
    CHECK_EQ(sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL), SQLITE_OK);
    CHECK_EQ(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    CHECK_EQ(sqlite3_step(stmt), SQLITE_ROW);
    page = (uint32_t)sqlite3_column_int64(stmt, 0);
    (void)sqlite3_finalize(stmt);
    (void)sqlite3_close(db);
    return page;
}

/* Zeroes a leaf of the tree of that table or index: the last one, or one in the middle of its parent
 * (sqlite.org/fileformat2.html#b_tree_pages). */
static void zero_leaf(const char *name, bool is_last)
{
    static const uint8_t zeros[PAGE];
    uint32_t page = root_of(name), cells;
    int fd = open(path_of("state.db"), O_RDWR | O_CLOEXEC);
    uint8_t bytes[PAGE];

    CHECK(fd >= 0);
    for (;;) {
        CHECK_EQ(pread(fd, bytes, PAGE, (off_t)(page - 1) * PAGE), PAGE);
        if (bytes[0] != 0x05 && bytes[0] != 0x02)
            break;
        cells = number(bytes + 3, 2);
        page = is_last ? number(bytes + 8, 4)
                       : number(bytes + number(bytes + 12 + 2 * (cells / 2), 2), 4);
    }
    CHECK(bytes[0] == 0x0d || bytes[0] == 0x0a);
    CHECK_EQ(pwrite(fd, zeros, PAGE, (off_t)(page - 1) * PAGE), PAGE);
    (void)close(fd);
}

/* How many jobs have their command. */
static uint32_t count_specs(struct store *store)
{
    struct arena arena = {0};
    struct store_spec spec;
    uint32_t count = 0;

    for (uint64_t id = 1; id <= JOBS; id++) {
        enum status status = store_spec(store, id, true, &arena, &spec);

        CHECK(status == STATUS_OK || status == STATUS_NOT_FOUND);
        count += status == STATUS_OK && strlen(spec.argv.items[1]) == LONG;
    }
    arena_reset(&arena);
    return count;
}

static uint32_t count_events(struct store *store, uint64_t *last_id)
{
    static struct part_event events[2 * JOBS];
    const struct store_viewer everyone = {.sees_all = true};
    struct arena arena = {0};
    uint32_t count = store_events(store, everyone, 0, 0, 2 * JOBS, &arena, events);

    CHECK(count > 0);
    *last_id = events[count - 1].id;
    CHECK(strstr(events[count - 1].text, "state.db was damaged") != NULL);
    arena_reset(&arena);
    return count - 1;
}

static void check_whole(void)
{
    sqlite3 *db;
    sqlite3_stmt *stmt;

    CHECK_EQ(sqlite3_open(path_of("state.db"), &db), SQLITE_OK);
    CHECK_EQ(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &stmt, NULL), SQLITE_OK);
    CHECK_EQ(sqlite3_step(stmt), SQLITE_ROW);
    CHECK_STR((const char *)sqlite3_column_text(stmt, 0), "ok");
    (void)sqlite3_finalize(stmt);
    (void)sqlite3_close(db);
}

static struct store *open_mended(const char *tree, bool is_last, const char cluster[33])
{
    struct store *store;
    uint64_t ids[JOBS + 1];

    zero_leaf(tree, is_last);
    store = open_or_fail(test_dir());
    CHECK_STR(store_cluster(store), cluster);
    CHECK(!store_is_of_past(store));
    CHECK(is_there("state.db.damaged") && !is_there("state.db.mended"));
    CHECK_EQ(store_active_ids(store, 0, ids, JOBS + 1), JOBS);
    CHECK_EQ(store_next_job_id(store), JOBS + 1);
    return store;
}

static void read_cluster(char cluster[33])
{
    struct store *store = open_or_fail(test_dir());

    (void)snprintf(cluster, 33, "%s", store_cluster(store));
    store_close(&store);
}

TEST(a_lost_page_of_commands_costs_only_its_jobs)
{
    char cluster[33];
    struct store *store;
    uint32_t left;
    uint64_t id;

    (void)forget_boot();
    make_state();
    read_cluster(cluster);
    store = open_mended("specs", false, cluster);
    left = count_specs(store);
    CHECK(left < JOBS && left >= JOBS - PAGE / LONG);
    CHECK_EQ(count_events(store, &id), JOBS);
    write_one(store, JOBS + 1); /* it goes on */
    store_close(&store);
    check_whole();
    store = open_or_fail(test_dir()); /* and is whole: nothing is mended again */
    CHECK_EQ(count_specs(store), left);
    CHECK(!is_there("state.db.damaged-2"));
    store_close(&store);
}

TEST(so_does_the_last_page_into_which_new_ones_go)
{
    char cluster[33];
    struct store *store;
    uint32_t left;

    (void)forget_boot();
    make_state();
    read_cluster(cluster);
    store = open_mended("specs", true, cluster);
    left = count_specs(store);
    CHECK(left < JOBS && left >= JOBS - PAGE / LONG);
    write_one(store, JOBS + 1);
    store_close(&store);
    check_whole();
}

/* Numbers of lost events are not given again. */
TEST(a_lost_page_of_events)
{
    char cluster[33];
    struct store *store;
    uint64_t id;

    (void)forget_boot();
    make_state();
    read_cluster(cluster);
    store = open_mended("events", true, cluster);
    CHECK_EQ(count_specs(store), JOBS);
    CHECK(count_events(store, &id) < JOBS);
    CHECK_EQ(id, JOBS + 1);
    store_close(&store);
    check_whole();
}

TEST(a_lost_page_of_an_index_costs_nothing)
{
    static const char *const indices[] = {"jobs_name", "events_job"};
    char cluster[33];
    struct store *store;
    uint64_t id;

    (void)forget_boot();
    make_state();
    read_cluster(cluster);
    for (uint32_t i = 0; i < 2; i++) {
        store = open_mended(indices[i], true, cluster);
        CHECK_EQ(count_specs(store), JOBS);
        CHECK_EQ(count_events(store, &id), JOBS + i); /* with that of the first time */
        store_close(&store);
        check_whole();
    }
    CHECK(is_there("state.db.damaged-2"));
}

TEST(a_lost_page_of_what_all_need_refuses_the_start)
{
    static const char *const trees[] = {"jobs", "meta", "request_ids", "principals"};
    struct stat before, after;

    for (uint32_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        struct store *store = NULL;
        struct err err = {.text = ""};

        if (i > 0)
            CHECK_EQ(unlink(path_of("state.db")), 0);
        if (is_there("state-seen"))
            CHECK_EQ(unlink(path_of("state-seen")), 0);
        (void)forget_boot();
        make_state();
        zero_leaf(trees[i], false);
        CHECK_EQ(stat(path_of("state.db"), &before), 0);
        CHECK_EQ(store_open(&store, test_dir(), true, &err), STATUS_IO);
        CHECK(store == NULL);
        if (strstr(err.text, "state.db is damaged") == NULL ||
            strstr(err.text, "move it and its -wal away, and restore a backup (ddpctl restore)") ==
                NULL)
            FAIL("%s: %s", trees[i], err.text);
        CHECK_EQ(stat(path_of("state.db"), &after), 0);
        CHECK(before.st_ino == after.st_ino && before.st_mtime == after.st_mtime);
        CHECK(!is_there("state.db.damaged") && !is_there("state.db.mended"));
    }
}

/* The newest commits stay in the log, for whoever looks at the files. */
TEST(a_refusal_leaves_the_log)
{
    struct stat file, log, after;
    struct store *store = NULL;
    struct err err;
    int status;
    pid_t pid;

    (void)forget_boot();
    make_state();
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (store_open(&store, test_dir(), true, NULL) == STATUS_OK)
            write_one(store, JOBS + 1);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    zero_leaf("jobs", false);
    CHECK_EQ(stat(path_of("state.db"), &file), 0);
    CHECK_EQ(stat(path_of("state.db-wal"), &log), 0);
    CHECK(log.st_size > 0);
    CHECK_EQ(store_open(&store, test_dir(), true, &err), STATUS_IO);
    CHECK(stat(path_of("state.db"), &after) == 0 && after.st_mtim.tv_nsec == file.st_mtim.tv_nsec);
    CHECK(stat(path_of("state.db-wal"), &after) == 0 && after.st_size == log.st_size);
}

TEST(a_backup_of_it_says_what_helps)
{
    struct backup_facts facts;
    struct err err = {.text = ""};

    (void)forget_boot();
    make_state();
    zero_leaf("specs", false);
    CHECK_EQ(backup_dir(test_dir(), path_of("backup"), 1, &facts, &err), STATUS_IO);
    CHECK(strstr(err.text, "cannot read table specs") != NULL);
    CHECK(strstr(err.text, "restart it first") != NULL);
}

static jmp_buf ended;

static void end(struct store *store, int code)
{
    (void)store;
    longjmp(ended, code);
}

/* The page is lost while the server runs: it ends so that its next start mends the file. */
TEST(a_read_that_finds_damage_is_no_failed_write)
{
    struct store_disk disk = store_disk_usual;
    struct store *volatile store = NULL;
    struct store *opened = NULL;
    struct arena arena = {0};
    struct store_spec spec;
    struct err err;
    int code;

    (void)forget_boot();
    make_state();
    disk.end = end;
    CHECK_EQ(store_open_on(&opened, &disk, test_dir(), true, &err), STATUS_OK);
    store = opened;
    zero_leaf("specs", false);
    CHECK_EQ(sqlite3_db_release_memory(store->db), SQLITE_OK);
    code = setjmp(ended);
    for (uint64_t id = 1; code == 0 && id <= JOBS; id++)
        (void)store_spec(store, id, false, &arena, &spec);
    CHECK_EQ(code, STORE_DAMAGED_EXIT_CODE);
    arena_reset(&arena);
    opened = store;
    store_release(opened);
    opened = open_or_fail(test_dir());
    CHECK(is_there("state.db.damaged"));
    store_close(&opened);
}

TEST_MAIN
