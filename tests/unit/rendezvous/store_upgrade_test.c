/* Files of earlier schemas are brought up to the present one, and their jobs survive. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/store/store.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

/* What version 1 wrote, word for word. */
#define SCHEMA_1                                                                                   \
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"                \
    "CREATE TABLE jobs (id INTEGER NOT NULL, request_id TEXT NOT NULL, name TEXT NOT NULL,"        \
    " user TEXT NOT NULL, uid INTEGER NOT NULL, nodes INTEGER NOT NULL,"                           \
    " nproc_per_node INTEGER NOT NULL, max_restarts INTEGER NOT NULL, grace_us INTEGER NOT NULL,"  \
    " time_limit_us INTEGER NOT NULL, state TEXT NOT NULL, generation INTEGER NOT NULL,"           \
    " restarts INTEGER NOT NULL, restarts_without_progress INTEGER NOT NULL,"                      \
    " checkpoint_step INTEGER NOT NULL, cancel_wanted INTEGER NOT NULL, reason TEXT NOT NULL,"     \
    " exit_code INTEGER NOT NULL, signal INTEGER NOT NULL, exit_is_ours INTEGER NOT NULL,"         \
    " submitted_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"      \
    " failed_rank INTEGER NOT NULL, failed_node TEXT NOT NULL, tail TEXT NOT NULL,"                \
    " place TEXT NOT NULL, epoch INTEGER NOT NULL, epochs INTEGER NOT NULL, step INTEGER NOT "     \
    "NULL,"                                                                                        \
    " steps INTEGER NOT NULL, loss REAL NOT NULL, samples_per_s REAL NOT NULL,"                    \
    " parts TEXT NOT NULL, PRIMARY KEY (id));"                                                     \
    "CREATE INDEX jobs_name ON jobs (name, id);"                                                   \
    "CREATE INDEX jobs_active ON jobs (id) WHERE state IN"                                         \
    " ('queued','starting','running','restarting');"                                               \
    "CREATE TABLE specs (job_id INTEGER PRIMARY KEY, cwd TEXT NOT NULL, argv TEXT NOT NULL,"       \
    " env TEXT NOT NULL);"                                                                         \
    "CREATE TABLE ranks (job_id INTEGER NOT NULL, generation INTEGER NOT NULL,"                    \
    " rank INTEGER NOT NULL, local_rank INTEGER NOT NULL, node TEXT NOT NULL,"                     \
    " slot INTEGER NOT NULL, pid INTEGER NOT NULL, state TEXT NOT NULL,"                           \
    " exit_code INTEGER NOT NULL, signal INTEGER NOT NULL,"                                        \
    " PRIMARY KEY (job_id, generation, rank)) WITHOUT ROWID;"                                      \
    "CREATE TABLE events (id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL,"                         \
    " job_id INTEGER NOT NULL, generation INTEGER NOT NULL, text TEXT NOT NULL);"                  \
    "CREATE INDEX events_job ON events (job_id, id);"                                              \
    "CREATE TABLE request_ids (request_id TEXT NOT NULL, uid INTEGER NOT NULL,"                    \
    " job_id INTEGER NOT NULL, PRIMARY KEY (request_id, uid)) WITHOUT ROWID;"                      \
    "INSERT INTO meta VALUES ('cluster', '0123456789abcdef0123456789abcdef');"
/* Version 2 had drains too. */
#define SCHEMA_2                                                                                   \
    SCHEMA_1                                                                                       \
    "CREATE TABLE drains (node TEXT NOT NULL, slot INTEGER NOT NULL, user TEXT NOT NULL,"          \
    " reason TEXT NOT NULL, at_ms INTEGER NOT NULL, PRIMARY KEY (node, slot)) WITHOUT ROWID;"      \
    "INSERT INTO drains VALUES ('n1', 0, 'ann', 'fan', 5);"
/* A running job of ann (uid 1000) and an ended one of bob (uid 1001) with the same request id. */
#define JOBS                                                                                       \
    "INSERT INTO jobs VALUES (4, '0000000000000000000000000000000a', 'sweep', 'ann', 1000, 1, 2,"  \
    " 3, 10000000, 0, 'running', 2, 1, 0, 70, 0, '', 0, 0, 0, 1700000000000, 1700000001000, 0,"    \
    " -1, '', '', 'n1', 1, 2, 77, 100, 0.5, 9.5,"                                                  \
    " '[{\"node\":\"n1\",\"rank_base\":0,\"local_count\":2,\"slot_mask\":\"3\"}]');"               \
    "INSERT INTO jobs VALUES (5, '0000000000000000000000000000000a', 'other', 'bob', 1001, 1, 1,"  \
    " 0, 0, 0, 'succeeded', 1, 0, 0, 0, 0, '', 0, 0, 0, 1, 2, 3, -1, '', '', '', 0, 0, 0, 0, 0,"   \
    " 0, '[]');"                                                                                   \
    "INSERT INTO specs VALUES (4, '/home/ann', '[\"train\"]', '{\"A\":\"1\"}');"                   \
    "INSERT INTO request_ids VALUES ('0000000000000000000000000000000a', 1000, 4);"                \
    "INSERT INTO request_ids VALUES ('0000000000000000000000000000000a', 1001, 5);"                \
    "INSERT INTO ranks VALUES (4, 1, 0, 0, 'n1', 0, 7, 'exited', 3, 0);"                           \
    "INSERT INTO events VALUES (9, 1, 4, 2, 'began');"                                             \
    "PRAGMA application_id = 1684303921;"

static void make_file(const char *sql, int version)
{
    char path[512], text[64];
    int fd;

    (void)forget_boot();
    (void)snprintf(path, sizeof path, "%s/state.db", test_dir());
    fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    (void)close(fd);
    execute(sql);
    execute(JOBS);
    (void)snprintf(text, sizeof text, "PRAGMA user_version = %d", version);
    execute(text);
}

static struct arena records; /* parts of what was read */

static void check_jobs(struct store *store)
{
    const char *request_id = "0000000000000000000000000000000a";
    const struct store_viewer ann = {.user = "ann"}, bob = {.user = "bob"};
    struct arena arena = {0};
    struct rdzv_record job;
    struct store_spec spec;
    uint64_t id = 0;

    CHECK_STR(store_cluster(store), "0123456789abcdef0123456789abcdef");
    CHECK(store_get_job(store, 4, &records, &job));
    CHECK_STR(job.user, "ann");
    CHECK_EQ(job.state, JOB_RUNNING);
    CHECK_EQ(job.generation, 2);
    CHECK_EQ(job.checkpoint_step, 70);
    CHECK_EQ(job.part_count, 1);
    CHECK_EQ(job.parts[0].slot_mask, 3);
    CHECK_EQ(store_active_ids(store, 0, &id, 1), 1);
    CHECK_EQ(id, 4);
    CHECK_EQ(store_spec(store, 4, true, &arena, &spec), STATUS_OK);
    CHECK_STR(spec.env.items[0].value, "1");
    CHECK_EQ(spec.launch.count, 0);
    CHECK_EQ(store_find_job(store, "sweep", ann), 4);
    CHECK_EQ(store_find_job(store, "sweep", bob), 0);
    CHECK(store_find_request(store, request_id, "ann", &id));
    CHECK_EQ(id, 4);
    CHECK(store_find_request(store, request_id, "bob", &id));
    CHECK_EQ(id, 5);
    CHECK(!store_find_request(store, request_id, "carl", &id));
    CHECK_EQ(store_last_event_id(store), 9);
    arena_reset(&arena);
}

static void count_one(const struct store_principal *principal, void *context)
{
    (void)principal;
    ++*(int *)context;
}

/* No failure is known of an earlier version, and the next one is kept. */
static void check_failures(struct store *store, uint32_t before)
{
    struct part_failure failure = {
        .generation = 2, .node = "n1", .cause = "c", .tail = "", .world = 2, .decision = ""};
    struct part_failure read[FAILURES_KEPT_MAX];
    struct part_failed_rank ranks[1];
    struct arena arena = {0};

    CHECK_EQ(store_failures(store, 4, &arena, read), before);
    CHECK_EQ(store_failed_ranks(store, 4, 1, &arena, ranks, 1), 1);
    CHECK_EQ(ranks[0].after_us, -1);
    store_begin(store);
    store_write_failure(store, 4, &failure, false);
    store_commit(store);
    arena_reset(&arena);
}

static void check_upgrade(uint32_t drain_count)
{
    struct store_principal added = {.name = "n1", .role = ROLE_NODE, .secret_count = 1};
    struct rdzv_drain found[2];
    int principals = 0;

    for (int i = 0; i < 2; i++) { /* by the upgrade, and as a file of the present version */
        struct store *store = open_or_fail(test_dir());

        check_jobs(store);
        CHECK_EQ(store_drains(store, found, 2), drain_count);
        check_failures(store, (uint32_t)i);
        principals = 0;
        (void)store_principals(store, count_one, &principals);
        CHECK_EQ(principals, i);
        store_begin(store);
        store_write_principal(store, &added);
        store_close(&store);
    }
}

TEST(version_1_is_brought_up)
{
    make_file(SCHEMA_1, 1);
    check_upgrade(0);
}

TEST(version_2_is_brought_up)
{
    make_file(SCHEMA_2, 2);
    check_upgrade(1);
}

/* Version 7 had fewer columns of jobs, and the index of arrays already. */
TEST(version_7_is_brought_up)
{
    struct store *store = open_or_fail(test_dir());
    const struct store_viewer ann = {.user = "ann"};
    struct rdzv_record job;

    store_close(&store);
    execute("ALTER TABLE jobs DROP COLUMN requeue_at_limit;"
            "ALTER TABLE jobs DROP COLUMN limited_step;"
            "ALTER TABLE jobs DROP COLUMN requeued_ms;"
            "PRAGMA user_version = 7;"
            "INSERT INTO jobs (id, name, user, state, nodes, after_job, after_last) VALUES"
            " (7, 'waits', 'ann', 'queued', 1, 3, 4)");
    for (int i = 0; i < 2; i++) {
        store = open_or_fail(test_dir());
        CHECK_EQ(store_find_job(store, "waits", ann), 7);
        CHECK(store_get_job(store, 7, &records, &job));
        CHECK(job.after_job == 3 && job.after_last == 4 && !job.after_any);
        CHECK(!job.requeue_at_limit && job.limited_step == 0 && job.requeued_ms == 0);
        store_close(&store);
    }
}

/* Half of an upgrade is none: the file stays as it was. */
TEST(an_upgrade_that_fails_changes_nothing)
{
    struct store *store = NULL;
    struct err err = {0};

    make_file(SCHEMA_2 "CREATE TABLE old_request_ids (x);", 2);
    CHECK_EQ(store_open(&store, test_dir(), true, &err), STATUS_IO);
    CHECK(strstr(err.text, "old_request_ids") != NULL);
    execute("DROP TABLE old_request_ids");
    check_upgrade(1);
}

TEST_MAIN
