/* The store on a real file: what was committed is there after kill -9, what was not is gone whole;
 * a request id leads to one job; foreign and newer files are refused and not changed. */
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/store/store.h"
#include "rendezvous/store/internal.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

static const struct store_viewer everyone = {.sees_all = true};

static struct arena records; /* parts of what was read */

static struct rdzv_record make_job(uint64_t job_id, const char *name, uint32_t uid)
{
    struct rdzv_record job = {.where = "node0,node1", .epoch = 2, .loss = 0.5, .step = 77};
    struct rdzv_record *record = &job;
    static struct rdzv_part parts[64][2];
    static uint32_t made;

    record->parts = parts[made++ % 64];
    record->job_id = job_id;
    (void)snprintf(record->request_id, sizeof record->request_id, "%032llx",
                   (unsigned long long)job_id);
    (void)snprintf(record->name, sizeof record->name, "%s", name);
    (void)snprintf(record->user, sizeof record->user, "uid%u", uid);
    (void)snprintf(record->tail, sizeof record->tail, "line 1\n\"line\" 2\n");
    record->uid = uid;
    record->nodes = 2;
    record->nproc_per_node = 2;
    record->max_restarts = 3;
    record->grace_us = DURATION_US_MAX;
    record->state = JOB_RUNNING;
    record->generation = 4;
    record->checkpoint_step = JOB_ID_MAX;
    record->failed_rank = -1;
    record->submitted_ms = 1700000000123;
    record->part_count = 2;
    for (uint32_t i = 0; i < 2; i++) {
        (void)snprintf(record->parts[i].node, sizeof record->parts[i].node, "node%u", i);
        record->parts[i].rank_base = 2 * i;
        record->parts[i].local_count = 2;
        record->parts[i].slot_mask = i == 0 ? UINT64_C(0x8000000000000001) : 6;
    }
    return job;
}

static const char *const argv_items[] = {"python", "train.py", "", "a \"b\"\n\xc3\xa9"};
static const struct msg_pair env_items[] = {{"PATH", "/bin"}, {"EMPTY", ""}, {"path", "x=y"}};

static struct msg_submit make_submit(const char *request_id)
{
    return (struct msg_submit){.request_id = request_id,
                               .name = "job",
                               .nproc_per_node = 1,
                               .cwd = "/home/x",
                               .array = "",
                               .argv = {argv_items, 4},
                               .launch = {env_items, 1},
                               .env = {env_items, 3}};
}

static void write_one(struct store *store, uint64_t job_id, const char *name, uint32_t uid)
{
    struct rdzv_record job = make_job(job_id, name, uid); /* of user "uidN" */
    struct msg_submit submit = make_submit(job.request_id);

    store_begin(store);
    store_write_job(store, &job);
    store_write_spec(store, job_id, job.user, &submit);
    (void)store_write_event(store, 1, job_id, 4, "submitted");
    store_commit(store);
}

#define CHECK_COLUMN_U32(field) CHECK_EQ(read.field, wrote.field)
#define CHECK_COLUMN_I32(field) CHECK_EQ(read.field, wrote.field)
#define CHECK_COLUMN_U64(field) CHECK_EQ(read.field, wrote.field)
#define CHECK_COLUMN_I64(field) CHECK_EQ(read.field, wrote.field)
#define CHECK_COLUMN_BOOL(field) CHECK_EQ(read.field, wrote.field)
#define CHECK_COLUMN_STATE(field) CHECK_EQ(read.field, wrote.field)
#define CHECK_COLUMN_F64(field) CHECK_NEAR(read.field, wrote.field, 0)
#define CHECK_COLUMN_TEXT(field) CHECK_STR(read.field, wrote.field)
#define CHECK_COLUMN(kind, field, column, audience, bytes) CHECK_COLUMN_##kind(field);

TEST(a_job_comes_back_whole)
{
    struct store *store = open_or_fail(test_dir());
    struct rdzv_record wrote = make_job(7, "r50", 1000), read;

    store_begin(store);
    store_write_job(store, &wrote);
    store_commit(store);
    store_close(&store);
    CHECK(store == NULL);
    store = open_or_fail(test_dir());
    memset(&read, 0xff, sizeof read);
    CHECK(store_get_job(store, 7, &records, &read));
    RDZV_RECORD_TABLE(CHECK_COLUMN)
    CHECK_EQ(read.part_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_STR(read.parts[i].node, wrote.parts[i].node);
        CHECK_EQ(read.parts[i].rank_base, wrote.parts[i].rank_base);
        CHECK_EQ(read.parts[i].local_count, wrote.parts[i].local_count);
        CHECK_EQ(read.parts[i].slot_mask, wrote.parts[i].slot_mask);
    }
    CHECK(!store_get_job(store, 8, &records, &read));
    CHECK_EQ(store_next_job_id(store), 8);
    store_close(&store);
}

TEST(a_spec_comes_back_whole)
{
    struct store *store = open_or_fail(test_dir());
    struct arena arena = {0};
    struct store_spec spec;

    write_one(store, 1, "job", 0);
    CHECK_EQ(store_spec(store, 1, true, &arena, &spec), STATUS_OK);
    CHECK_STR(spec.cwd, "/home/x");
    CHECK(spec.argv.count == 4 && spec.env.count == 3);
    for (uint32_t i = 0; i < 4; i++)
        CHECK_STR(spec.argv.items[i], argv_items[i]);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_STR(spec.env.items[i].name, env_items[i].name);
        CHECK_STR(spec.env.items[i].value, env_items[i].value);
    }
    CHECK(spec.launch.count == 1 && strcmp(spec.launch.items[0].value, "/bin") == 0);
    CHECK(store_spec(store, 1, false, &arena, &spec) == STATUS_OK && spec.env.count == 0 &&
          spec.launch.count == 0);
    CHECK_EQ(store_spec(store, 2, true, &arena, &spec), STATUS_NOT_FOUND);
    arena_reset(&arena);
    store_close(&store);
}

/* A damaged file may have a NULL in any column. */
TEST(columns_without_a_text_are_empty)
{
    struct store *store = open_or_fail(test_dir());
    struct rdzv_record read;
    struct arena arena = {0};
    struct store_spec spec;
    char node[NODE_NAME_BYTES_MAX] = "-";

    write_one(store, 1, "job", 0);
    execute(
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL', '')");
    execute("UPDATE specs SET cwd = NULL; UPDATE ranks SET node = NULL;"
            " UPDATE jobs SET tail = NULL, parts = NULL, state = NULL");
    CHECK_EQ(store_spec(store, 1, true, &arena, &spec), STATUS_OK);
    CHECK_STR(spec.cwd, "");
    CHECK(store_rank_node(store, 1, 4, 0, node));
    CHECK_STR(node, "");
    CHECK(store_get_job(store, 1, &arena, &read));
    CHECK_STR(read.tail, "");
    CHECK_EQ(read.part_count, 0);
    CHECK_EQ(read.state, JOB_FAILED); /* nobody takes it for one that waits or runs */
    arena_reset(&arena);
    store_close(&store);
}

TEST(a_request_id_belongs_to_its_user)
{
    struct store *store = open_or_fail(test_dir());
    const char *request_id = "00000000000000000000000000000003";
    uint64_t job_id = 0;

    CHECK(!store_find_request(store, request_id, "uid1000", &job_id));
    write_one(store, 3, "job", 1000);
    CHECK(store_find_request(store, request_id, "uid1000", &job_id));
    CHECK_EQ(job_id, 3);
    CHECK(!store_find_request(store, request_id, "uid1001", &job_id));
    store_close(&store);
}

TEST(jobs_are_found_by_their_owner)
{
    struct store *store = open_or_fail(test_dir());
    const struct store_viewer anna = {.user = "uid1000"}, bert = {.user = "uid1001"};

    CHECK_EQ(store_find_job(store, "@last", everyone), 0);
    write_one(store, 1, "sweep", 1000);
    write_one(store, 2, "sweep", 1000);
    write_one(store, 3, "sweep", 1001);
    CHECK_EQ(store_find_job(store, "@last", everyone), 3);
    CHECK_EQ(store_find_job(store, "@last", anna), 2);
    CHECK_EQ(store_find_job(store, "sweep", anna), 2);
    CHECK_EQ(store_find_job(store, "sweep", bert), 3);
    CHECK_EQ(store_find_job(store, "1", anna), 1);
    CHECK_EQ(store_find_job(store, "1", bert), 0);
    CHECK_EQ(store_find_job(store, "99999999999999999999999", everyone), 0);
    CHECK_EQ(store_find_job(store, "swee", everyone), 0);
    store_close(&store);
}

static void count_job(const struct rdzv_record *job, void *context)
{
    uint64_t *sum = context;

    *sum = *sum * 10 + job->job_id;
}

TEST(lists_and_active_ones)
{
    struct store *store = open_or_fail(test_dir());
    struct rdzv_record ended = make_job(2, "b", 1000);
    uint64_t digits = 0, ids[8];

    for (uint64_t id = 1; id <= 4; id++)
        write_one(store, id, "a", id == 4 ? 1001 : 1000);
    ended.state = JOB_FAILED;
    ended.part_count = 0;
    store_begin(store);
    store_write_job(store, &ended);
    store_commit(store);
    CHECK_EQ(store_active_ids(store, 0, ids, 8), 3);
    CHECK(ids[0] == 1 && ids[1] == 3 && ids[2] == 4);
    CHECK_EQ(store_active_ids(store, 0, ids, 2), 2);
    CHECK_EQ(store_active_ids(store, 3, ids, 8), 1);
    CHECK_EQ(ids[0], 4);
    store_list(store, everyone, 0, 500, count_job, &digits);
    CHECK_EQ(digits, 1234);
    digits = 0;
    store_list(store, (struct store_viewer){.user = "uid1000"}, 1, 500, count_job, &digits);
    CHECK_EQ(digits, 23);
    digits = 0;
    store_list(store, everyone, 0, 2, count_job, &digits);
    CHECK_EQ(digits, 12);
    store_close(&store);
}

TEST(ranks_of_every_generation_are_kept)
{
    struct store *store = open_or_fail(test_dir());
    struct rdzv_record job = make_job(1, "a", 0);
    struct rdzv_rank ranks[4] = {{.pid = 10, .state = RANK_EXITED, .exit_code = 3},
                                 {.pid = 11, .state = RANK_STOPPED, .signal = 15},
                                 {.pid = 12, .state = RANK_LOST},
                                 {.pid = 13, .state = RANK_EXITED}};
    struct part_job_rank read[8];
    struct arena arena = {0};
    char node[NODE_NAME_BYTES_MAX];

    store_begin(store);
    store_write_job(store, &job);
    CHECK_EQ(store_ranks(store, 1, 4, 0, &arena, read, 8), 4);
    CHECK_EQ(read[0].state, RANK_WAITING);
    store_write_ranks(store, 1, 4, job.parts, 2, ranks, (struct store_clock){0});
    store_write_job(store, &job); /* must not set the ranks back */
    job.generation = 5;
    job.part_count = 1; /* two ranks on the second node alone */
    job.parts[0] = job.parts[1];
    job.parts[0].rank_base = 0;
    store_write_job(store, &job);
    store_commit(store);
    CHECK_EQ(store_ranks(store, 1, 4, 0, &arena, read, 8), 4);
    CHECK_EQ(read[0].exit_code, 3);
    CHECK_EQ(read[1].signal, 15);
    CHECK_EQ(read[1].slot, 63);
    CHECK_EQ(read[1].local_rank, 1);
    CHECK_EQ(read[2].slot, 1);
    CHECK_EQ(read[3].slot, 2);
    CHECK_STR(read[3].node, "node1");
    CHECK_EQ(store_ranks(store, 1, 4, 0, &arena, read, 3), 3);
    CHECK_EQ(store_ranks(store, 1, 4, 1, &arena, read, 2), 2); /* a page */
    CHECK_EQ(read[0].rank, 1);
    CHECK_EQ(read[1].rank, 2);
    CHECK_EQ(store_ranks(store, 1, 4, 3, &arena, read, 8), 1);
    CHECK_EQ(store_ranks(store, 1, 4, 4, &arena, read, 8), 0);
    CHECK(store_rank_node(store, 1, 4, 0, node));
    CHECK_STR(node, "node0");
    CHECK(store_rank_node(store, 1, 5, 0, node));
    CHECK_STR(node, "node1");
    CHECK(!store_rank_node(store, 1, 6, 0, node));
    CHECK(!store_rank_node(store, 1, 5, 2, node));
    arena_reset(&arena);
    store_close(&store);
}

TEST(events_are_numbered_and_filtered)
{
    struct store *store = open_or_fail(test_dir());
    struct part_event events[8];
    struct arena arena = {0};

    write_one(store, 1, "a", 1000); /* event 1 */
    write_one(store, 2, "b", 1001); /* event 2 */
    store_begin(store);
    CHECK_EQ(store_write_event(store, 5, 0, 0, "node0 is up"), 3);
    CHECK(store_is_dirty(store));
    store_close(&store);
    store = open_or_fail(test_dir());
    CHECK_EQ(store_last_event_id(store), 3);
    CHECK_EQ(store_events(store, everyone, 0, 0, 8, &arena, events), 3);
    CHECK_STR(events[2].text, "node0 is up");
    CHECK_EQ(store_events(store, everyone, 0, 2, 8, &arena, events), 1);
    CHECK_EQ(store_events(store, everyone, 0, 0, 2, &arena, events), 2);
    CHECK_EQ(store_events(store, everyone, 2, 0, 8, &arena, events), 1);
    CHECK_EQ(events[0].id, 2);
    CHECK_EQ(store_events(store, (struct store_viewer){.user = "uid1000"}, 0, 0, 8, &arena, events),
             2);
    CHECK_EQ(events[0].job_id, 1);
    CHECK_EQ(events[1].job_id, 0);
    CHECK_EQ(store_events(store, (struct store_viewer){.user = "uid1000"}, 2, 0, 8, &arena, events),
             0);
    arena_reset(&arena);
    store_close(&store);
}

static void wait_for_kill(pid_t pid, int signal_wanted)
{
    int status = 0;

    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), signal_wanted);
}

/* A child does one transaction of five writes and dies by kill -9 after the n-th; the file opens
 * again and has all of it or nothing. */
TEST(kill_between_any_two_steps)
{
    struct rdzv_record job = make_job(1, "a", 1000), got;
    struct msg_submit submit = make_submit(job.request_id);
    struct store_spec spec;
    uint64_t job_id;

    for (int die_after = 0; die_after <= 6; die_after++) {
        struct arena arena = {0};
        char dir[256];
        struct store *store;
        bool whole = die_after >= 6;
        pid_t pid;

        (void)snprintf(dir, sizeof dir, "%s/%d", test_dir(), die_after);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            struct rdzv_rank ranks[4] = {{.pid = 1}};
            int step = 0;

            if (store_open(&store, dir, true, NULL) != STATUS_OK)
                _exit(1);
#define STEP(call)                                                                                 \
    if (step++ == die_after)                                                                       \
        (void)kill(getpid(), SIGKILL);                                                             \
    call
            STEP(store_begin(store));
            STEP(store_write_job(store, &job));
            STEP(store_write_spec(store, 1, job.user, &submit));
            STEP(store_write_ranks(store, 1, 4, job.parts, 2, ranks, (struct store_clock){0}));
            STEP((void)store_write_event(store, 1, 1, 4, "x"));
            STEP(store_commit(store));
            STEP(_exit(2));
            _exit(3);
        }
        wait_for_kill(pid, SIGKILL);
        store = open_or_fail(dir);
        CHECK_EQ(store_get_job(store, 1, &records, &got), whole);
        CHECK_EQ(store_find_request(store, job.request_id, job.user, &job_id), whole);
        CHECK_EQ(store_spec(store, 1, true, &arena, &spec) == STATUS_OK, whole);
        CHECK_EQ(store_last_event_id(store), whole ? 1 : 0);
        arena_reset(&arena);
        store_close(&store);
    }
}

/* Kill -9 at moments that the child does not choose: what it reported as committed is there. */
TEST(kill_at_any_moment)
{
    const char *dir = test_dir();

    for (int round = 0; round < 12; round++) {
        int said[2];
        uint64_t last = 0, id;
        struct rdzv_record got;
        struct store *store;
        pid_t pid;

        CHECK(pipe2(said, O_CLOEXEC) == 0);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            store = NULL;
            if (store_open(&store, dir, true, NULL) != STATUS_OK)
                _exit(1);
            for (id = store_next_job_id(store);; id++) {
                write_one(store, id, "a", 0);
                if (write(said[1], &id, sizeof id) != sizeof id)
                    _exit(1);
            }
        }
        (void)close(said[1]);
        for (int i = 0; i <= round * 3; i++)
            CHECK(read(said[0], &last, sizeof last) == sizeof last);
        CHECK(kill(pid, SIGKILL) == 0);
        wait_for_kill(pid, SIGKILL);
        while (read(said[0], &id, sizeof id) == sizeof id)
            last = id;
        (void)close(said[0]);
        store = open_or_fail(dir);
        for (id = 1; id <= last; id++)
            CHECK(store_get_job(store, id, &records, &got));
        CHECK(store_next_job_id(store) <= last + 2); /* one more may be committed, unreported */
        store_close(&store);
    }
}

TEST(a_second_server_is_refused_by_name)
{
    struct store *first = open_or_fail(test_dir()), *second = NULL;
    struct err err = {0};
    char pid[32];

    (void)snprintf(pid, sizeof pid, "pid %d", (int)getpid());
    CHECK_EQ(store_open(&second, test_dir(), true, &err), STATUS_BUSY);
    CHECK(second == NULL);
    CHECK(strstr(err.text, pid) != NULL);
    store_close(&first);
    second = open_or_fail(test_dir());
    store_close(&second);
}

TEST(newer_and_foreign_files_are_refused)
{
    struct store *store = open_or_fail(test_dir());
    char text[64], known[32];
    struct err err = {0};

    write_one(store, 1, "a", 0);
    store_close(&store);
    (void)snprintf(text, sizeof text, "PRAGMA user_version = %d", STORE_SCHEMA_VERSION + 1);
    (void)snprintf(known, sizeof known, "schema %d", STORE_SCHEMA_VERSION);
    execute(text);
    CHECK_EQ(store_open(&store, test_dir(), true, &err), STATUS_UNSUPPORTED);
    CHECK(strstr(err.text, known) != NULL && strstr(err.text, "newer") != NULL);
    (void)snprintf(text, sizeof text, "PRAGMA user_version = %d", STORE_SCHEMA_VERSION);
    execute(text); /* it was not changed */
    store = open_or_fail(test_dir());
    CHECK_EQ(store_next_job_id(store), 2);
    store_close(&store);
    execute("PRAGMA application_id = 0");
    CHECK_EQ(store_open(&store, test_dir(), true, &err), STATUS_UNSUPPORTED);
    CHECK(strstr(err.text, "not a state of rendezvous") != NULL);
}

TEST(a_damaged_file_is_refused)
{
    char path[512];
    struct store *store = NULL;
    struct err err = {0};
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/state.db", test_dir());
    file = fopen(path, "w");
    CHECK(file != NULL);
    for (int i = 0; i < 1000; i++)
        (void)fprintf(file, "this is no database %d\n", i);
    CHECK(fclose(file) == 0);
    CHECK_EQ(store_open(&store, test_dir(), true, &err), STATUS_IO);
    CHECK(strstr(err.text, "state.db") != NULL);
}

/* Somebody removed state.db of a killed server, and left its log, which may have the newest commits. */
TEST(a_log_without_its_file_is_neither_played_nor_dropped)
{
    const char *dir = test_dir();
    struct store *store = NULL;
    char path[512], log[512];
    struct stat before, after;
    struct err err;
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        if (store_open(&store, dir, true, NULL) != STATUS_OK)
            _exit(1);
        write_one(store, 1, "a", 0);
        (void)kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    (void)snprintf(path, sizeof path, "%s/state.db", dir);
    (void)snprintf(log, sizeof log, "%s/state.db-wal", dir);
    CHECK(unlink(path) == 0 && stat(log, &before) == 0);
    CHECK_EQ(store_open(&store, dir, true, &err), STATUS_REFUSED);
    CHECK_EQ(store_open_new(&store, dir, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "state.db is gone, but its wal") != NULL);
    CHECK(stat(log, &after) == 0 && after.st_size == before.st_size);
    CHECK(stat(path, &after) < 0);
}

/* Without fsync: still whole after kill -9. */
TEST(kill_without_fsync)
{
    const char *dir = test_dir();
    struct store *store = NULL;
    struct rdzv_record got;
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        if (store_open(&store, dir, false, NULL) != STATUS_OK)
            _exit(1);
        write_one(store, 1, "a", 0);
        (void)kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(store_open(&store, dir, false, NULL), STATUS_OK);
    CHECK(store_get_job(store, 1, &records, &got));
    store_close(&store);
}

TEST(the_cluster_id_stays)
{
    struct store *store = open_or_fail(test_dir());
    char first[33];

    CHECK_EQ(strlen(store_cluster(store)), 32);
    (void)snprintf(first, sizeof first, "%s", store_cluster(store));
    store_close(&store);
    store = open_or_fail(test_dir());
    CHECK_STR(store_cluster(store), first);
    store_close(&store);
}

TEST(files_are_private)
{
    static const char *const names[] = {"state.db", "state.db-wal", "state.db-shm", "lock"};
    char dir[512], path[1024];
    struct store *store;
    struct stat info;
    mode_t mask = umask(0);

    (void)snprintf(dir, sizeof dir, "%s/a/b", test_dir());
    store = open_or_fail(dir);
    (void)umask(mask);
    write_one(store, 1, "a", 0);
    CHECK(stat(dir, &info) == 0);
    CHECK_EQ(info.st_mode & 0777, 0700);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        CHECK(stat(path, &info) == 0);
        CHECK_EQ(info.st_mode & 0777, 0600);
    }
    store_close(&store);
}

/* The disk accepts no more data: the process ends with its own exit code and a line that says why;
 * all earlier commits are there. */
TEST(a_failed_write_ends_the_process)
{
    struct rdzv_record got;
    struct store *store = open_or_fail(test_dir());
    char text[4096] = "";
    int said[2], status = 0;
    pid_t pid;

    write_one(store, 1, "a", 0);
    store_close(&store);
    CHECK(pipe2(said, O_CLOEXEC) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct rlimit limit;

        if (store_open(&store, test_dir(), true, NULL) != STATUS_OK || dup2(said[1], 2) != 2)
            _exit(1);
        limit.rlim_cur = limit.rlim_max = 100000; /* of its log */
        (void)signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) < 0)
            _exit(2);
        for (uint64_t id = 2; id < 1000; id++)
            write_one(store, id, "a", 0);
        _exit(3);
    }
    (void)close(said[1]);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), STORE_EXIT_CODE);
    CHECK(read(said[0], text, sizeof text - 1) > 0);
    (void)close(said[0]);
    CHECK(strstr(text, "state.db") != NULL);
    store = open_or_fail(test_dir());
    CHECK(store_get_job(store, 1, &records, &got));
    store_close(&store);
}

TEST_MAIN
