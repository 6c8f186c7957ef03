/* Files in the places of the store's that are not the store's, and places where there was a state. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/store/seen.h"
#include "rendezvous/store/store.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

/* A link, even to a database that is not there now, is neither followed nor replaced. */
TEST(what_is_not_a_file_of_ours_is_left_alone)
{
    static const char *const names[] = {"state.db", "state.db-wal", "state.db-shm",
                                        "state.db-journal"};
    char other[512], path[512];
    struct stat info;
    struct err err;

    (void)snprintf(other, sizeof other, "%s/other", test_dir());
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct store *store = NULL;
        int fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

        CHECK(fd >= 0 && write(fd, "precious", 8) == 8 && fchmod(fd, 0644) == 0);
        (void)close(fd);
        (void)snprintf(path, sizeof path, "%s/%s", test_dir(), names[i]);
        CHECK_EQ(symlink(other, path), 0);
        CHECK_EQ(store_open(&store, test_dir(), true, &err), STATUS_REFUSED);
        CHECK(strstr(err.text, "is a symbolic link: it is not followed") != NULL);
        CHECK(stat(path, &info) == 0 && (info.st_mode & 07777) == 0644 && info.st_size == 8);
        CHECK_EQ(unlink(other), 0); /* as when its disk is not mounted */
        CHECK_EQ(store_open(&store, test_dir(), true, &err), STATUS_REFUSED);
        CHECK(lstat(path, &info) == 0 && S_ISLNK(info.st_mode));
        CHECK_EQ(unlink(path), 0);
        CHECK_EQ(mkfifo(path, 0600), 0);
        CHECK_EQ(store_open(&store, test_dir(), true, &err), STATUS_REFUSED);
        CHECK(strstr(err.text, "is no plain file") != NULL);
        CHECK_EQ(unlink(path), 0);
    }
}

static const char *path_of(const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    return path;
}

static void put(const char *name, const char *text)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    (void)close(fd);
}

static off_t size_of(const char *name)
{
    struct stat info;

    return lstat(path_of(name), &info) == 0 ? info.st_size : -1;
}

static void make_state(char cluster[64])
{
    struct store *store = open_or_fail(test_dir());

    (void)snprintf(cluster, 64, "%s", store_cluster(store));
    store_close(&store);
}

static void check_refused(const char *words)
{
    struct store *store = NULL;
    struct err err = {.text = ""};

    CHECK_EQ(store_open(&store, test_dir(), true, &err), STATUS_REFUSED);
    if (strstr(err.text, words) == NULL || strstr(err.text, "--new-cluster") == NULL)
        FAIL("%s", err.text);
}

TEST(a_state_db_that_is_gone_is_no_new_cluster)
{
    struct store *store = NULL;
    char first[64];
    struct err err;

    make_state(first);
    CHECK_EQ(unlink(path_of("state.db")), 0);
    check_refused("is missing, but it was the state of cluster");
    CHECK_EQ(size_of("state.db"), -1);
    CHECK_EQ(store_open_new(&store, test_dir(), &err), STATUS_OK);
    CHECK(strcmp(store_cluster(store), first) != 0);
    store_close(&store);
    make_state(first); /* and is remembered in its turn */
    CHECK_EQ(unlink(path_of("state.db")), 0);
    check_refused("is missing, but it was the state of cluster");
}

TEST(nor_is_one_that_has_only_its_log)
{
    static const char *const ends[] = {"state.db-wal", "state.db-shm", "state.db-journal"};
    struct store *store = NULL;
    struct err err;

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        put(ends[i], "the newest commits");
        check_refused("is gone, but its");
        CHECK_EQ(store_open_new(&store, test_dir(), &err), STATUS_REFUSED);
        CHECK_EQ(size_of(ends[i]), 18);
        CHECK_EQ(size_of("state.db"), -1);
        CHECK_EQ(unlink(path_of(ends[i])), 0);
    }
}

TEST(nor_is_one_of_no_bytes)
{
    put("state.db", "");
    put("state.db-wal", "the newest commits");
    check_refused("has 0 bytes");
    CHECK_EQ(size_of("state.db"), 0);
    CHECK_EQ(size_of("state.db-wal"), 18);
}

TEST(nor_is_the_directory_of_a_server_on_etcd)
{
    put("etcd-seen", "ddp-seen 1 cluster=c restore=- commit=7 job=3 event=4\n");
    check_refused("a state on etcd, cluster c");
    put("etcd-seen", "what is this");
    check_refused("nobody knows");
}

/* The state that is seen last may be one that came before: a standby notes what is there. */
TEST(a_state_that_came_before_is_not_noted)
{
    struct seen first = {.cluster = "a", .restore = "-", .commit = 7}, got;
    struct seen second = {.cluster = "b", .restore = "b", .commit = 1};
    struct seen third = {.cluster = "b", .restore = "c", .commit = 1, .lineage = "a"};
    struct err err;
    char path[512];

    (void)snprintf(path, sizeof path, "%s", path_of("etcd-seen"));
    seen_add_lineage(&second, &first);
    CHECK_STR(second.lineage, "a");
    CHECK_EQ(seen_write(path, &first, &err), STATUS_OK);
    CHECK_EQ(seen_write(path, &second, &err), STATUS_OK);
    CHECK_EQ(seen_write(path, &first, &err), STATUS_OK);
    CHECK_EQ(seen_read(path, &got, NULL, &err), STATUS_OK);
    CHECK(seen_is_same(&got, &second) && seen_came_before(&first, &got));
    CHECK_EQ(seen_write(path, &third, &err),
             STATUS_OK); /* somebody who knew only the first made it */
    CHECK_EQ(seen_read(path, &got, NULL, &err), STATUS_OK);
    CHECK(seen_is_same(&got, &third) && seen_came_before(&second, &got));
    first.cluster[0] = 'x'; /* another cluster */
    CHECK_EQ(seen_write(path, &first, &err), STATUS_OK);
    CHECK_EQ(seen_read(path, &got, NULL, &err), STATUS_OK);
    CHECK(seen_is_same(&got, &first));
    CHECK_STR(got.lineage, "-");
}

TEST(of_a_long_lineage_the_first_and_the_newest_stay)
{
    struct seen now = {.cluster = "", .restore = "-"}, other = {.restore = "-"};

    for (int c = 'a'; c < 'a' + 20; c++) {
        memset(other.cluster, c, SEEN_ID_BYTES - 1);
        seen_add_lineage(&now, &other);
    }
    CHECK(strlen(now.lineage) < SEEN_LINEAGE_BYTES);
    for (int c = 'a'; c < 'a' + 20; c++) {
        memset(other.cluster, c, SEEN_ID_BYTES - 1);
        CHECK_EQ(seen_came_before(&other, &now), c == 'a' || c >= 'a' + 13);
    }
}

/* What a server remembers of a state on etcd. */
TEST(what_was_seen_is_kept_and_nothing_of_others_is_replaced)
{
    const struct seen written = {.cluster = "c", .restore = "-", .commit = 7};
    struct seen got;
    struct stat info;
    struct err err;
    char path[512];

    (void)snprintf(path, sizeof path, "%s", path_of("etcd-seen"));
    CHECK_EQ(seen_read(path, &got, NULL, &err), STATUS_NOT_FOUND);
    CHECK_EQ(symlink("elsewhere", path), 0);
    CHECK_EQ(seen_write(path, &written, &err), STATUS_REFUSED);
    CHECK(lstat(path, &info) == 0 && S_ISLNK(info.st_mode));
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(mkfifo(path, 0600), 0);
    CHECK_EQ(seen_write(path, &written, &err), STATUS_REFUSED);
    CHECK_EQ(unlink(path), 0);
    put("etcd-seen", "garbage");
    CHECK_EQ(seen_read(path, &got, NULL, &err), STATUS_BAD_INPUT);
    CHECK_EQ(seen_write(path, &written, &err), STATUS_OK);
    CHECK_EQ(size_of("etcd-seen.damaged"), 7);
    CHECK_EQ(seen_read(path, &got, NULL, &err), STATUS_OK);
    CHECK_EQ(got.commit, 7);
    put("etcd-seen", "garbage again");
    CHECK_EQ(seen_write(path, &written, &err), STATUS_OK);
    CHECK_EQ(size_of("etcd-seen.damaged"), 7); /* both are kept */
    CHECK_EQ(size_of("etcd-seen.damaged-2"), 13);
}

/* Who may write in it may take every secret. */
/* The log's index is memory that is mapped from a file: on a frozen disk who writes in it hangs. */
TEST(a_read_after_a_commit_writes_nothing)
{
    const struct store_viewer everyone = {.user = "", .sees_all = true};
    static char before[1 << 16], after[1 << 16];
    struct store *store = NULL;
    struct err err;
    ssize_t got;
    int fd;

    CHECK_EQ(store_open(&store, test_dir(), true, &err), STATUS_OK);
    for (uint64_t i = 1; i <= 3; i++) {
        store_begin(store);
        store_write_lease(store, i);
        store_commit(store);
        fd = open(path_of("state.db-shm"), O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0);
        got = pread(fd, before, sizeof before, 0);
        CHECK(got > 0);
        CHECK_EQ(store_find_job(store, "1", everyone), 0);
        CHECK_EQ(pread(fd, after, sizeof after, 0), got);
        (void)close(fd);
        CHECK_EQ(memcmp(before, after, (size_t)got), 0);
    }
    store_close(&store);
}

TEST(a_directory_in_which_others_may_write_is_refused)
{
    struct err err = {.text = ""};
    char dir[512];
    struct folder_lock lock;

    (void)snprintf(dir, sizeof dir, "%s/open", test_dir());
    CHECK(mkdir(dir, 0700) == 0 && chmod(dir, 0702) == 0);
    CHECK_EQ(store_hold(dir, &lock, &err), STATUS_REFUSED);
    if (geteuid() != 0)
        SKIP("only root can give a folder away");
    CHECK(chmod(dir, 0770) == 0 && chown(dir, 0, 65534) == 0);
    CHECK_EQ(store_hold(dir, &lock, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "others may write in it") != NULL);
    CHECK(chmod(dir, 0750) == 0);
    CHECK_EQ(store_hold(dir, &lock, &err), STATUS_OK);
    folder_lock_release(&lock);
}

/* The folder stays locked, and the kernel knows by whom. */
TEST(the_holder_is_named_also_when_the_file_lock_was_removed)
{
    struct folder_lock lock, second;
    struct err err = {.text = ""};
    char dir[512], path[600], pid[32];

    (void)snprintf(dir, sizeof dir, "%s/held", test_dir());
    (void)snprintf(path, sizeof path, "%s/lock", dir);
    (void)snprintf(pid, sizeof pid, ", pid %d: ", (int)getpid());
    CHECK_EQ(mkdir(dir, 0700), 0);
    CHECK_EQ(store_hold(dir, &lock, &err), STATUS_OK);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(store_hold(dir, &second, &err), STATUS_BUSY);
    CHECK(strstr(err.text, pid) != NULL);
    folder_lock_release(&lock);
}

TEST_MAIN
