/* The store on a disk with faults (tests/lib/disk_vfs.h): after every power cut, failed sync and full
 * disk all that was acknowledged is there exactly once, and what was not is there whole or not at all.
 * STORE_DISK_SEEDS and STORE_DISK_FIRST run other random histories. */
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "rendezvous/store/internal.h"
#include "tests/lib/disk_vfs.h"
#include "tests/lib/store_model.h"
#include "tests/lib/test.h"

#define SHORT_COMMITS 8u
#define MIB ((uint64_t)1 << 20)

static const char dir[] = "/state";

/* One server's life on the disk. */
static struct life {
    struct store *store;
    jmp_buf ended;
    struct model acknowledged,
        pending; /* pending: with the transaction whose commit was under way */
} life;

static void on_end(struct store *store, int code)
{
    if (code != STORE_EXIT_CODE)
        abort();
    disk_bury(store);
    life.store = NULL;
    longjmp(life.ended, 1);
}

/* Each failure would be a line. */
static void keep_quiet(void)
{
    log_open("store", (enum log_level)(LOG_ERROR + 1), false);
}

/* True: the store is open. False: the process ended, or the open failed with a reason. */
static bool start(void)
{
    struct err err = {.text = ""};

    life.store = NULL;
    if (setjmp(life.ended) != 0)
        return false;
    if (store_open_on(&life.store, disk_table(on_end), dir, true, &err) == STATUS_OK)
        return true;
    CHECK(err.text[0] != '\0');
    disk_process_killed();
    return false;
}

/* Commits with one to three changes each; false: the process ended meanwhile. */
static bool work(struct model_random *random, uint32_t commits, bool big)
{
    if (setjmp(life.ended) != 0)
        return false;
    for (uint32_t i = 0; i < commits; i++) {
        life.pending = life.acknowledged;
        store_begin(life.store);
        for (uint64_t changes = 1 + model_draw(random, 3); changes > 0; changes--)
            model_change(&life.pending, random, life.store, big);
        store_commit(life.store);
        life.acknowledged = life.pending;
    }
    return true;
}

static bool stop(void)
{
    if (setjmp(life.ended) != 0)
        return false;
    store_close(&life.store);
    return true;
}

/* Ends the process like kill -9. */
static void kill_it(void)
{
    if (life.store == NULL)
        return;
    disk_bury(life.store);
    life.store = NULL;
}

/* Starts the server again, which must work, and checks the store. A transaction whose commit was in
 * progress may be there: then it stays. */
static void check(const char *what)
{
    char text[200] = "", other[200] = "";

    if (!start())
        FAIL("%s: the store does not open again", what);
    if (model_matches(&life.acknowledged, life.store, text, sizeof text))
        return;
    if (!model_matches(&life.pending, life.store, other, sizeof other))
        FAIL("%s: lost what was acknowledged: %s (or half a commit: %s)", what, text, other);
    life.acknowledged = life.pending;
}

static void begin(uint64_t seed)
{
    disk_init(seed, 0);
    model_init(&life.acknowledged);
    life.pending = life.acknowledged;
}

/* A disk with some jobs, saved; what every short history begins with. */
static struct model saved_model;

static void make_saved(void)
{
    struct model_random random = {.state = 1};

    begin(1);
    CHECK(start());
    CHECK(work(&random, 10, false));
    CHECK(stop());
    disk_power_on(DISK_REST_ALL);
    disk_save();
    saved_model = life.acknowledged;
}

static void restore(uint64_t seed)
{
    disk_restore(seed);
    life.acknowledged = life.pending = saved_model;
}

static const char *const rest_names[] = {"nothing", "all", "some"};

/* -- power cuts -------------------------------------------------------------------------------- */

TEST(power_cut_at_every_write_of_a_short_history)
{
    char what[120];
    uint64_t before;

    make_saved();
    for (enum disk_rest rest = DISK_REST_NONE; rest <= DISK_REST_SOME; rest++)
        for (uint64_t change = 1;; change++) {
            struct model_random random = {.state = 7};
            bool is_whole;

            restore(change);
            before = disk_changes();
            disk_cut_at(before + change);
            is_whole = start() && work(&random, SHORT_COMMITS, false) && stop();
            kill_it();
            disk_power_on(rest);
            (void)snprintf(what, sizeof what, "power cut at change %llu, %s of the rest written",
                           (unsigned long long)change, rest_names[rest]);
            check(what);
            kill_it();
            if (is_whole)
                break;
            CHECK(change < 5000);
        }
    disk_free();
}

/* How many writes, names and syncs the start of a new store takes. */
static uint64_t changes_of_a_new_store(void)
{
    uint64_t count;

    begin(1);
    CHECK(start());
    count = disk_changes();
    kill_it();
    disk_free();
    return count;
}

/* Its reserve (room.c) has a thousand pages. They are not written one by one. */
TEST(a_new_store_takes_few_writes)
{
    const uint64_t count = changes_of_a_new_store();

    if (count < 10 || count > 150)
        FAIL("%llu changes of the disk", (unsigned long long)count);
}

/* Cuts the power at each change until the store is open. */
TEST(power_cut_while_the_file_is_made)
{
    const uint64_t count = changes_of_a_new_store();
    char what[80];

    for (uint64_t change = 1; change <= count + 1; change++) {
        begin(change);
        disk_cut_at(change);
        CHECK(!start() || change > count);
        kill_it();
        disk_power_on(change % 3 == 0 ? DISK_REST_ALL : DISK_REST_SOME);
        (void)snprintf(what, sizeof what, "power cut at change %llu", (unsigned long long)change);
        check(what);
        kill_it();
    }
    disk_free();
}

/* -- failures ---------------------------------------------------------------------------------- */

/* The server that starts after it acknowledges more; then the power goes. */
TEST(after_a_failed_sync_the_log_is_written_again)
{
    uint64_t ended = 0;
    char what[80];

    make_saved();
    for (uint64_t sync = 1; sync <= 40; sync++) {
        struct model_random random = {.state = sync};

        restore(sync);
        disk_fail_at(DISK_SYNC, disk_count(DISK_SYNC) + sync, 1, EIO);
        if (start() && work(&random, 2 * SHORT_COMMITS, sync % 2 == 0))
            kill_it();
        else
            ended++;
        disk_fail_at(DISK_SYNC, 0, 0, 0);
        (void)snprintf(what, sizeof what, "sync %llu failed", (unsigned long long)sync);
        check(what);
        CHECK(work(&random, SHORT_COMMITS, false));
        kill_it();
        disk_power_on(sync % 4 == 0 ? DISK_REST_SOME : DISK_REST_NONE);
        (void)snprintf(what, sizeof what, "sync %llu failed, a new server, then a power cut",
                       (unsigned long long)sync);
        check(what);
        kill_it();
    }
    CHECK(ended >= 16); /* a commit is a sync: the store must not go on after any of them */
    disk_free();
}

/* While the log is copied into the file; SQLite by itself would go on. */
TEST(a_failed_sync_of_a_checkpoint_ends_the_process)
{
    struct model_random random = {.state = 3};

    make_saved();
    restore(1);
    CHECK(start());
    disk_fail_syncs_of("/state/state.db", EIO);
    CHECK(!work(&random, 300, true));
    disk_fail_syncs_of(NULL, 0);
    CHECK(disk_table(on_end)->byte_count("/state/state.db-wal") < (int64_t)(8 * MIB));
    check("sync of state.db failed");
    CHECK(work(&random, SHORT_COMMITS, false));
    kill_it();
    disk_power_on(DISK_REST_NONE);
    check("sync of state.db failed, a new server, then a power cut");
    kill_it();
    disk_free();
}

static char said[1024]; /* the newest line of the log */

static void note_line(const char *bytes, size_t byte_count)
{
    (void)snprintf(said, sizeof said, "%.*s", (int)byte_count, bytes);
}

/* SQLite keeps no errno of a sync, so a full disk has to show in another way. */
TEST(a_failed_sync_is_told_with_what_is_free)
{
    struct model_random random = {.state = 5};

    make_saved();
    restore(1);
    CHECK(start());
    disk_set_capacity(disk_used() + 3 * MIB);
    log_open("store", LOG_ERROR, false);
    log_use(note_line);
    disk_fail_syncs_of("/state/state.db-wal", ENOSPC);
    CHECK(!work(&random, 1, false));
    log_use(NULL);
    keep_quiet();
    disk_fail_syncs_of(NULL, 0);
    CHECK(strstr(said, "/state/state.db: disk I/O error (SQLite 1034): what was written has not "
                       "reached the disk, and SQLite keeps no errno; the file system of /state has "
                       "3 MiB free; stopping: after a failed write only the disk knows what is "
                       "stored. Free the disk or mend it, then start again") != NULL);
    disk_set_capacity(0);
    check("a sync of the log failed");
    kill_it();
    disk_free();
}

static void fail_reads_or_writes(enum disk_op op)
{
    char what[80];

    make_saved();
    for (uint64_t number = 1; number < 400; number += 1 + number / 20) {
        struct model_random random = {.state = number};

        restore(number);
        disk_fail_at(op, disk_count(op) + number, 1 + number % 3, EIO);
        if (start())
            (void)work(&random, SHORT_COMMITS, number % 3 == 0);
        kill_it();
        if (number % 2 == 0)
            disk_power_on(DISK_REST_SOME);
        disk_fail_at(op, 0, 0, 0);
        (void)snprintf(what, sizeof what, "%s %llu failed", op == DISK_READ ? "read" : "write",
                       (unsigned long long)number);
        check(what);
        kill_it();
    }
    disk_free();
}

TEST(a_failed_read_loses_nothing)
{
    fail_reads_or_writes(DISK_READ);
}

TEST(a_failed_write_loses_nothing)
{
    fail_reads_or_writes(DISK_WRITE);
}

/* Other programs fill the disk, down to the last byte, at any time; then there is space again. */
TEST(a_full_disk_loses_nothing)
{
    char what[80];

    make_saved();
    for (uint64_t i = 0; i < 40; i++) {
        struct model_random random = {.state = i};

        restore(i);
        if (i % 4 == 3)
            disk_set_capacity(disk_used() + 1); /* full before it starts */
        if (start() && work(&random, 1 + (uint32_t)(i % 5), false)) {
            disk_set_capacity(disk_used() + i % 3 * 4096);
            (void)work(&random, 40, i % 2 == 0);
        }
        kill_it();
        disk_set_capacity(disk_used() + 64 * MIB);
        if (i % 2 == 0)
            disk_power_on(DISK_REST_SOME);
        (void)snprintf(what, sizeof what, "full disk %llu", (unsigned long long)i);
        check(what);
        CHECK(!store_is_low(life.store));
        CHECK(work(&random, 4, false)); /* and it goes on */
        kill_it();
    }
    disk_free();
}

/* On a full disk, the writes that running jobs need still work for a long time. */
TEST(a_full_disk_does_not_stop_what_runs)
{
    struct model_random random = {.state = 5};

    make_saved();
    restore(5);
    CHECK(start());
    disk_set_capacity(disk_used());
    CHECK(store_is_low(life.store));
    CHECK(work(&random, 200, false));
    kill_it();
    check("200 commits on a full disk");
    kill_it();
    disk_free();
}

/* -- random histories -------------------------------------------------------------------------- */

static uint64_t number_of(const char *name, uint64_t usual)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : usual;
}

static void draw_fault(struct model_random *random)
{
    uint64_t soon = 1 + model_draw(random, 400);

    switch (model_draw(random, 8)) {
    case 0:
    case 1:
    case 2:
    case 3:
        disk_cut_at(disk_changes() + soon);
        return;
    case 4:
    case 5:
        disk_fail_at(DISK_SYNC, disk_count(DISK_SYNC) + 1 + soon / 16, 1, EIO);
        return;
    case 6:
        disk_fail_at(DISK_WRITE, disk_count(DISK_WRITE) + soon, 1, EIO);
        return;
    default:
        disk_set_capacity(disk_used() + model_draw(random, 8) * MIB);
        return;
    }
}

static void run_history(uint64_t seed)
{
    struct model_random random = {.state = seed};
    char what[80];

    restore(seed);
    for (uint32_t age = 0; age < 6; age++) {
        draw_fault(&random);
        if (start() &&
            work(&random, 4 + (uint32_t)model_draw(&random, 40), model_draw(&random, 3) == 0) &&
            model_draw(&random, 2) == 0)
            (void)stop();
        kill_it();
        disk_set_capacity(0);
        if (disk_is_off() || model_draw(&random, 2) == 0)
            disk_power_on((enum disk_rest)model_draw(&random, 3));
        else
            disk_fail_at(DISK_SYNC, 0, 0, 0);
        disk_cut_at(0);
        disk_fail_at(DISK_WRITE, 0, 0, 0);
        (void)snprintf(what, sizeof what, "seed %llu, life %u", (unsigned long long)seed, age);
        check(what);
        kill_it();
    }
}

TEST(random_histories)
{
    uint64_t first = number_of("STORE_DISK_FIRST", 1), count = number_of("STORE_DISK_SEEDS", 60);

    make_saved();
    for (uint64_t seed = first; seed < first + count; seed++)
        run_history(seed);
    disk_free();
}

int main(int argc, char **argv)
{
    keep_quiet();
    return test_main(argc, argv);
}
