/* A state.db that is not the newest one of its directory: put back, or without its log. And what shows that it is. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/store/backup.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/witness_page.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

static const char *path_of(const char *name)
{
    static char paths[4][512];
    static uint32_t next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, sizeof paths[0], "%s/%s", test_dir(), name);
    return path;
}

/* Over what is there, as cp does it: the inode stays. */
static void copy(const char *from, const char *to)
{
    const int in = open(path_of(from), O_RDONLY | O_CLOEXEC);
    const int out = open(path_of(to), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    static char bytes[1 << 16];
    ssize_t got;

    CHECK(in >= 0 && out >= 0);
    while ((got = read(in, bytes, sizeof bytes)) > 0)
        CHECK_EQ(write(out, bytes, (size_t)got), got);
    CHECK_EQ(got, 0);
    (void)close(in);
    (void)close(out);
}

static void give(struct store *store, uint64_t id)
{
    const struct rdzv_record record = {.job_id = id,
                                       .name = "train",
                                       .user = "ann",
                                       .nodes = 1,
                                       .nproc_per_node = 1,
                                       .failed_rank = -1,
                                       .state = JOB_QUEUED};

    store_begin(store);
    store_write_job(store, &record);
    store_commit(store);
}

static bool is_above(uint64_t id, uint64_t given)
{
    return id > given + STORE_ID_GAP &&
           id <= given + 1 + (uint64_t)STORE_ID_GAP * STORE_ID_GAP_SPAN;
}

/* What a server that was killed has left of `store`: with or without its log. */
static void copy_crash(const char *to, bool has_log)
{
    static const char *const names[] = {"state.db", "state-seen", "state.db-wal"};
    char from[64], at[64];

    CHECK_EQ(mkdir(path_of(to), 0700), 0);
    for (size_t i = 0; i < (has_log ? 3 : 2); i++) {
        (void)snprintf(from, sizeof from, "live/%s", names[i]);
        (void)snprintf(at, sizeof at, "%s/%s", to, names[i]);
        copy(from, at);
    }
}

TEST(a_log_that_is_gone_is_noticed)
{
    struct store *live = open_or_fail(path_of("live")), *store;
    char cluster[SEEN_ID_BYTES];

    for (uint64_t id = 1; id <= 3; id++)
        give(live, id);
    copy_crash("whole", true);
    copy_crash("lost", false);
    (void)snprintf(cluster, sizeof cluster, "%s", store_cluster(live));
    store_close(&live);
    store = open_or_fail(path_of("whole"));
    CHECK_EQ(store_next_job_id(store), 4);
    CHECK_STR(store_cluster(store), cluster);
    store_close(&store);
    store = open_or_fail(path_of("lost"));
    CHECK(is_above(store_next_job_id(store), 3));
    CHECK_STR(store_cluster(store), cluster); /* what runs of it goes on */
    CHECK(store_is_of_past(store) && store_is_copy(store));
    CHECK(store_keys_lost_ms(store) != 0);
    CHECK(store_last_event_id(store) > STORE_ID_GAP);
    store_close(&store);
}

/* Its index is there: SQLite removes that one first. */
TEST(a_log_that_is_gone_is_noticed_by_its_index)
{
    struct store *live = open_or_fail(path_of("live")), *store;

    copy_crash("lost", false); /* no number was given: keys may be lost */
    copy("live/state.db-shm", "lost/state.db-shm");
    store_close(&live);
    store = open_or_fail(path_of("lost"));
    CHECK(is_above(store_next_job_id(store), 0));
    CHECK(store_is_of_past(store));
    store_close(&store);
}

/* The second time the copy knows nothing of what was done after the first time. */
TEST(a_copy_that_is_put_back_twice_gives_no_number_twice)
{
    struct store *store = open_or_fail(test_dir());
    uint64_t first;

    give(store, 1);
    store_close(&store);
    copy("state.db", "old.db");
    store = open_or_fail(test_dir());
    give(store, 2);
    store_close(&store);
    copy("old.db", "state.db");
    store = open_or_fail(test_dir());
    first = store_next_job_id(store);
    CHECK(is_above(first, 2));
    give(store, first);
    store_close(&store);
    copy("old.db", "state.db");
    store = open_or_fail(test_dir());
    CHECK(store_next_job_id(store) > first);
    CHECK(!store_is_newest(store));
    store_close(&store);
}

/* A number is noted before anybody is told of it, however fast they follow one another. */
TEST(a_state_of_a_moment_ago_is_noticed)
{
    struct store *store = open_or_fail(test_dir());

    give(store, 1);
    store_close(&store);
    copy("state.db", "old.db");
    store = open_or_fail(test_dir());
    for (uint64_t id = 2; id <= 9; id++)
        give(store, id);
    copy("state-seen", "seen");
    store_close(&store);
    copy("seen", "state-seen"); /* as a kill leaves it */
    copy("old.db", "state.db");
    store = open_or_fail(test_dir());
    CHECK(is_above(store_next_job_id(store), 9));
    store_close(&store);
}

static char known[128]; /* the folder of what this boot knows */

/* A boot that knows nothing yet. */
static void boot(void)
{
    (void)snprintf(known, sizeof known, "%s/boot-%u", forget_boot(), (unsigned)geteuid());
}

/* Nobody copies it, and after a kill -9 of its server its jobs must not wait for leases. */
TEST(a_private_state_counts_as_the_newest)
{
    struct store *store;
    struct err err;

    boot();
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_EQ(store_open(&store, path_of("private"), false, &err), STATUS_OK);
        CHECK(store_is_newest(store) && !store_is_copy(store));
        give(store, i + 1);
        store_release(store); /* killed */
    }
}

TEST(the_boot_knows_the_newest_state)
{
    struct store *store;

    boot();
    store = open_or_fail(path_of("live"));
    CHECK(store_is_newest(store)); /* it is new */
    give(store, 1);
    store_close(&store);
    store = open_or_fail(path_of("live"));
    CHECK(store_is_newest(store) && !store_is_copy(store));
    CHECK_EQ(store_next_job_id(store), 2);
    give(store, 2);
    store_release(store); /* killed */
    store = open_or_fail(path_of("live"));
    CHECK(store_is_newest(store) && !store_is_copy(store));
    store_close(&store);
}

static const char *memory_of(const struct store *store)
{
    static char path[128];

    (void)snprintf(path, sizeof path, "%.80s/state-%s", known, store_cluster(store));
    return path;
}

/* As if its server had run for the last time that much earlier, and had made so many commits elsewhere. */
static void change_memory(const char *path, uint64_t less_us, uint64_t less_commits)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    struct witness_page page;

    CHECK_EQ(pread(fd, &page, sizeof page, 0), sizeof page);
    page.facts.alive_us -= less_us;
    page.facts.commits -= less_commits;
    CHECK_EQ(pwrite(fd, &page, sizeof page, 0), sizeof page);
    CHECK_EQ(close(fd), 0);
}

/* Each would take its own for the newest. */
TEST(a_copy_is_not_used_beside_the_state)
{
    struct err err = {.text = ""};
    struct store *live, *store = NULL;

    boot();
    live = open_or_fail(path_of("live"));
    give(live, 1);
    copy_crash("copied", true);
    CHECK_EQ(store_open(&store, path_of("copied"), true, &err), STATUS_BUSY);
    CHECK(strstr(err.text, path_of("live/state.db")) != NULL);
    give(live, 2);
    store_close(&live);
    store = open_or_fail(path_of("copied"));
    CHECK(store_is_of_past(store) && is_above(store_next_job_id(store), 2));
    store_close(&store);
}

/* Another server may have gone on with a copy of the directory, and have ended. */
TEST(a_state_that_was_left_for_long_may_be_of_the_past)
{
    struct store *store;

    boot();
    store = open_or_fail(path_of("live"));
    give(store, 1);
    change_memory(memory_of(store), WITNESS_PAUSE_US + 1000000, 0);
    store_alive(store); /* it does not commit, but it runs */
    change_memory(memory_of(store), WITNESS_PAUSE_US / 2, 0);
    store_release(store);
    store = open_or_fail(path_of("live"));
    CHECK(store_is_newest(store) && !store_is_copy(store));
    change_memory(memory_of(store), WITNESS_PAUSE_US + 1000000, 0);
    store_release(store);
    store = open_or_fail(path_of("live"));
    CHECK(!store_is_newest(store) && store_is_copy(store) && !store_is_of_past(store));
    CHECK_EQ(store_next_job_id(store), 2);
    store_close(&store);
    store = open_or_fail(path_of("ahead"));
    give(store, 1);
    change_memory(memory_of(store), 0 - UINT64_C(3600000000), 0); /* in an hour */
    store_release(store);
    store = open_or_fail(path_of("ahead"));
    CHECK(!store_is_newest(store) && store_is_copy(store));
    store_close(&store);
}

/* What was committed elsewhere, and has come back, need not be all that was done there. One commit is that of a server
 * that was killed before it could note it. */
TEST(a_state_that_has_come_further_than_the_boot_knows_may_be_of_the_past)
{
    for (uint64_t more = 1; more <= 2; more++) {
        struct store *store;

        boot();
        store = open_or_fail(path_of(more == 1 ? "killed" : "elsewhere"));
        give(store, 1);
        give(store, 2);
        change_memory(memory_of(store), 0, more);
        store_release(store);
        store = open_or_fail(path_of(more == 1 ? "killed" : "elsewhere"));
        CHECK_EQ(store_is_newest(store), more == 1);
        CHECK_EQ(store_is_copy(store), more != 1);
        store_close(&store);
    }
}

/* The whole directory was copied, with all that it remembers. An orderly restart does not end the doubt. */
TEST(a_state_that_the_boot_does_not_know_may_be_of_the_past)
{
    struct store *store;

    boot();
    store = open_or_fail(path_of("live"));
    give(store, 1);
    store_close(&store);
    boot();
    for (int i = 0; i < 2; i++) {
        store = open_or_fail(path_of("live"));
        CHECK_EQ(store_is_newest(store), i == 1);
        CHECK(store_is_copy(store) && !store_is_of_past(store)); /* its jobs wait for a lease */
        CHECK_EQ(store_next_job_id(store), 2);
        store_close(&store);
    }
    store = open_or_fail(path_of("live"));
    store_begin(store);
    store_write_copy_over(store);
    store_commit(store);
    store_close(&store);
    store = open_or_fail(path_of("live"));
    CHECK(store_is_newest(store) && !store_is_copy(store));
    store_close(&store);
}

/* Moved away and back, with all that it remembers: its inodes and times are those of before. */
TEST(a_directory_that_was_moved_back_is_noticed)
{
    struct store *store;

    boot();
    store = open_or_fail(path_of("live"));
    give(store, 1);
    store_close(&store);
    CHECK_EQ(rename(path_of("live"), path_of("away")), 0);
    CHECK_EQ(mkdir(path_of("live"), 0700), 0);
    copy("away/state.db", "live/state.db");
    copy("away/state-seen", "live/state-seen");
    store = open_or_fail(path_of("live"));
    CHECK(store_is_newest(store)); /* nothing has followed */
    give(store, 2);
    give(store, 3);
    store_close(&store);
    CHECK_EQ(rename(path_of("live"), path_of("newer")), 0);
    CHECK_EQ(rename(path_of("away"), path_of("live")), 0);
    store = open_or_fail(path_of("live"));
    CHECK(store_is_of_past(store) && store_is_copy(store) && !store_is_newest(store));
    CHECK(is_above(store_next_job_id(store), 3));
    store_close(&store);
    CHECK_EQ(rename(path_of("live"), path_of("older")), 0);
    CHECK_EQ(rename(path_of("newer"), path_of("live")), 0);
    store = open_or_fail(path_of("live")); /* jobs of the older one may run */
    CHECK(store_is_copy(store) && !store_is_newest(store));
    store_close(&store);
}

/* The file of a state whose directory is gone is removed, and no other. A server that runs may see it where we do not. */
TEST(what_the_boot_knows_of_gone_states_is_removed)
{
    struct store *store;
    char kept[200], gone[200], other[200];
    int fd;

    boot();
    store = open_or_fail(path_of("one"));
    (void)snprintf(gone, sizeof gone, "%s/state-%s", known, store_cluster(store));
    store_close(&store);
    (void)snprintf(other, sizeof other, "%s/state-of-others", known);
    fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, "theirs", 6) == 6 && close(fd) == 0);
    CHECK_EQ(rename(path_of("one"), path_of("moved")), 0);
    store = open_or_fail(path_of("two"));
    (void)snprintf(kept, sizeof kept, "%s/state-%s", known, store_cluster(store));
    store_close(&store);
    store = open_or_fail(path_of("two"));
    CHECK_EQ(access(gone, F_OK), 0);
    store_close(&store);
    change_memory(gone, 61 * 1000000u, 0);
    store = open_or_fail(path_of("two"));
    CHECK(access(gone, F_OK) != 0);
    CHECK_EQ(access(kept, F_OK), 0);
    CHECK_EQ(access(other, F_OK), 0);
    store_close(&store);
}

static void lease(struct store *store, uint64_t lease_us)
{
    store_begin(store);
    store_write_lease(store, lease_us);
    store_commit(store);
}

TEST(a_longer_lease_of_later_is_not_forgotten_with_the_state)
{
    struct store *store = open_or_fail(test_dir());

    lease(store, 8000000);
    store_close(&store);
    copy("state.db", "old.db");
    store = open_or_fail(test_dir());
    lease(store, 70000000);
    store_close(&store);
    copy("old.db", "state.db");
    store = open_or_fail(test_dir());
    CHECK_EQ(store_lease_us(store), 70000000);
    lease(store, 9000000); /* nothing has the longer one any more */
    store_close(&store);
    store = open_or_fail(test_dir());
    CHECK_EQ(store_lease_us(store), 9000000);
    store_close(&store);
}

/* Written by an earlier version, which noted neither numbers nor a stamp. */
TEST(a_note_of_an_earlier_version_is_understood)
{
    struct store *store = open_or_fail(test_dir());
    char text[160];
    int fd, length;

    give(store, 1);
    length = snprintf(text, sizeof text, "ddp-seen 1 cluster=%s restore=- commit=0 job=0 event=0\n",
                      store_cluster(store));
    store_close(&store);
    boot();
    fd = open(path_of("state-seen"), O_WRONLY | O_TRUNC | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, text, (size_t)length) == length);
    (void)close(fd);
    store = open_or_fail(test_dir());
    CHECK_EQ(store_next_job_id(store), 2);
    CHECK(!store_is_newest(store) && store_is_copy(store) && !store_is_of_past(store));
    store_close(&store);
}

/* The directory has a restored state, and then the file of before that one, which has another cluster id. */
TEST(a_state_from_before_a_restore_is_noticed)
{
    struct store *store = open_or_fail(test_dir());
    struct backup_facts facts;
    struct err err;
    uint64_t first;

    give(store, 1);
    store_close(&store);
    CHECK_EQ(backup_dir(test_dir(), path_of("backup"), 1000, &facts, &err), STATUS_OK);
    CHECK_EQ(rename(path_of("state.db"), path_of("old.db")), 0);
    CHECK_EQ(unlink(path_of("state.db-wal")), 0);
    CHECK_EQ(unlink(path_of("state.db-shm")), 0);
    if (store_open_new(&store, test_dir(), &err) != STATUS_OK)
        FAIL("%s", err.text);
    CHECK_EQ(backup_restore(store, path_of("backup"), 1000, &facts, &err), STATUS_OK);
    store_close(&store);
    store = open_or_fail(test_dir());
    first = store_next_job_id(store);
    give(store, first);
    CHECK(store_is_copy(store) && !store_is_of_past(store));
    store_close(&store);
    copy("old.db", "state.db");
    store = open_or_fail(test_dir());
    CHECK(store_is_of_past(store) && store_is_copy(store));
    CHECK(is_above(store_next_job_id(store), first));
    store_close(&store);
    store = open_or_fail(test_dir());
    CHECK(!store_is_of_past(store)); /* it has a history of its own now */
    store_close(&store);
}

TEST_MAIN
