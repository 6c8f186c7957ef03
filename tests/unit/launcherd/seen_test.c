/* What a node remembers of its clusters, in the core and in its file; which folder has the logs of a job; the ends of
 * shims of other servers. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "launcherd/node/seen_files.h"
#include "launcherd/process/log_place.h"
#include "launcherd/process/rundir.h"
#include "tests/lib/test.h"
#include "tests/unit/launcherd/launcher_tools.h"

#define DAY_US (24 * 3600 * UINT64_C(1000000))

static const struct launcher_action *saved(void)
{
    for (uint32_t i = 0; i < actions.count; i++)
        if (actions.items[i].type == LAUNCHER_SAVE_SEEN)
            return &actions.items[i];
    return NULL;
}

static const struct msg_node_hello *hello(uint64_t now_us)
{
    event(now_us, LAUNCHER_EVENT_SERVER_CLOSED);
    event(now_us, LAUNCHER_EVENT_SERVER_OPEN);
    for (uint32_t i = 0; i < actions.count; i++)
        if (actions.items[i].type == LAUNCHER_SEND_SERVER)
            return &actions.items[i].msg.node_hello;
    FAIL("no hello");
}

TEST(the_newest_job_and_its_newest_generation_are_kept)
{
    const struct msg_node_hello *said;

    connected();
    (void)start(10, 4, 2, 1);
    CHECK_EQ(saved()->seen->jobs[0].job_id, 4);
    CHECK_EQ(saved()->seen->jobs[0].generation, 2);
    (void)start(11, 3, 7, 2);
    CHECK(saved() == NULL); /* an older one tells nothing new */
    (void)start(12, 4, 1, 4);
    CHECK(saved() == NULL);
    (void)start(13, 4, 3, 8);
    CHECK_EQ(saved()->seen->jobs[0].generation, 3);
    (void)start(14, 9, 1, 16);
    said = hello(20);
    CHECK_EQ(said->seen.count, 1);
    CHECK_STR(said->seen.items[0].cluster, "one");
    CHECK_EQ(said->seen.items[0].job_id, 9);
    CHECK_EQ(said->seen.items[0].generation, 1);
    CHECK_EQ(said->seen.items[0].lease_us, LEASE_US);
}

TEST(a_run_directory_counts_too)
{
    begin();
    (void)adopt(5, "one", true, NULL);
    CHECK_EQ(saved()->seen->jobs[0].job_id, 5);
}

TEST(the_cluster_of_the_oldest_order_is_dropped)
{
    struct seen_record record = {.count = 0};
    char name[33];

    for (uint32_t i = 0; i < CLUSTERS_SEEN_MAX; i++) {
        (void)snprintf(record.jobs[i].cluster, sizeof record.jobs[i].cluster, "c%u", i);
        record.jobs[i].job_id = record.jobs[i].generation = 1;
        record.count++;
    }
    connected();
    (void)step(10, (struct launcher_event){.type = LAUNCHER_EVENT_SEEN_LOADED, .seen = &record});
    (void)start(11, 2, 1, 1);
    CHECK_EQ(saved()->seen->count, CLUSTERS_SEEN_MAX);
    CHECK_STR(saved()->seen->jobs[0].cluster, "one");
    for (uint32_t i = 1; i < CLUSTERS_SEEN_MAX; i++) {
        (void)snprintf(name, sizeof name, "c%u", i - 1);
        CHECK_STR(saved()->seen->jobs[i].cluster, name);
    }
}

TEST(what_is_written_is_read)
{
    static const struct seen_record written = {
        .count = 2,
        .jobs = {{"0123456789abcdef0123456789abcdef", JOB_ID_MAX, GENERATION_MAX, 0},
                 {"b", 1, 1, DURATION_US_MAX}}};
    struct seen_record record;
    struct err err, note = {.text = ""};

    CHECK(seen_file_read(test_dir(), &record, &err) == STATUS_NOT_FOUND);
    CHECK(seen_file_write(test_dir(), &written, &note, &err) == STATUS_OK);
    CHECK(seen_file_write(test_dir(), &written, &note, &err) == STATUS_OK);
    CHECK(seen_file_read(test_dir(), &record, &err) == STATUS_OK);
    CHECK_EQ(record.count, 2);
    CHECK_STR(record.jobs[0].cluster, written.jobs[0].cluster);
    CHECK_EQ(record.jobs[0].job_id, JOB_ID_MAX);
    CHECK_EQ(record.jobs[0].lease_us, 0);
    CHECK_EQ(record.jobs[1].generation, 1);
    CHECK_EQ(record.jobs[1].lease_us, DURATION_US_MAX);
    CHECK(seen_file_decode("ddp-seen 1\nc 3 2\n", &record, &err) == STATUS_OK); /* of before */
    CHECK_EQ(record.jobs[0].lease_us, 0);
}

static const char *seen_path(const char *end)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%s/seen%s", test_dir(), end);
    return path;
}

/* A limit of the file's size refuses the bytes, as a full disk does: the old record stands, and nothing is left beside it. */
TEST(what_cannot_be_written_is_not_left)
{
    static const struct seen_record first = {.count = 1, .jobs = {{"b", 1, 1, 0}}},
                                    second = {.count = 1, .jobs = {{"b", 2, 1, 0}}};
    struct rlimit limit, before;
    struct seen_record record;
    struct err err, note = {.text = ""};

    CHECK_EQ(seen_file_write(test_dir(), &first, &note, &err), STATUS_OK);
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit = (struct rlimit){.rlim_cur = 4, .rlim_max = before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_EQ(seen_file_write(test_dir(), &second, &note, &err), STATUS_IO);
    CHECK_EQ(err.code, EFBIG);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK(signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
    CHECK_EQ(access(seen_path(".new"), F_OK), -1);
    CHECK_EQ(seen_file_read(test_dir(), &record, &err), STATUS_OK);
    CHECK_EQ(record.jobs[0].job_id, 1);
}

/* Of another kind, or damaged: it is left alone, or kept. */
TEST(what_has_the_name_is_not_lost)
{
    static const struct seen_record written = {.count = 1, .jobs = {{"b", 1, 1, 0}}};
    struct seen_record record;
    struct stat info;
    struct err err, note = {.text = ""};
    int fd;

    CHECK_EQ(symlink("elsewhere", seen_path("")), 0);
    CHECK_EQ(seen_file_read(test_dir(), &record, &err), STATUS_REFUSED);
    CHECK_EQ(seen_file_write(test_dir(), &written, &note, &err), STATUS_REFUSED);
    CHECK(lstat(seen_path(""), &info) == 0 && S_ISLNK(info.st_mode));
    CHECK_EQ(unlink(seen_path("")), 0);
    CHECK_EQ(mkfifo(seen_path(""), 0600), 0);
    CHECK_EQ(seen_file_write(test_dir(), &written, &note, &err), STATUS_REFUSED);
    CHECK(lstat(seen_path(""), &info) == 0 && S_ISFIFO(info.st_mode));
    CHECK_EQ(unlink(seen_path("")), 0);
    CHECK_EQ(mkdir(seen_path(""), 0700), 0);
    CHECK_EQ(seen_file_write(test_dir(), &written, &note, &err), STATUS_REFUSED);
    CHECK_EQ(rmdir(seen_path("")), 0);
    CHECK_STR(note.text, "");
    fd = open(seen_path(""), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, "garbage", 7) == 7 && close(fd) == 0);
    CHECK_EQ(seen_file_write(test_dir(), &written, &note, &err), STATUS_OK);
    CHECK(strstr(note.text, "seen.damaged") != NULL);
    CHECK(stat(seen_path(".damaged"), &info) == 0 && info.st_size == 7);
    CHECK_EQ(seen_file_read(test_dir(), &record, &err), STATUS_OK);
    fd = open(seen_path(""), O_WRONLY | O_TRUNC | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, "again", 5) == 5 && close(fd) == 0);
    CHECK_EQ(seen_file_write(test_dir(), &written, &note, &err), STATUS_OK);
    CHECK(stat(seen_path(".damaged-2"), &info) == 0 && info.st_size == 5);
}

TEST(a_damaged_file_is_no_record)
{
    static const char *const texts[] = {
        "",
        "ddp-seen 2\n",
        "ddp-seen 1\nc",
        "ddp-seen 1\nc 1 1",
        "ddp-seen 1\nc 0 1\n",
        "ddp-seen 1\nc 1\n",
        "ddp-seen 1\nc x 1\n",
        "ddp-seen 1\nc 1 1\nc 2 1\n",
        "ddp-seen 1\nc/d 1 1\n",
        "ddp-seen 1\nc 99999999999999999999 1\n",
        "ddp-seen 1\n012345678901234567890123456789012 1 1\n",
    };
    struct seen_record record;
    struct err err;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        CHECK(seen_file_decode(texts[i], &record, &err) == STATUS_BAD_INPUT);
        CHECK_EQ(record.count, 0);
    }
    CHECK(seen_file_decode("ddp-seen 1\nc 1 1 of-a-later-version\n", &record, &err) == STATUS_OK);
    CHECK_EQ(record.jobs[0].job_id, 1);
}

/* -- folders of logs -- */

static struct log_place folder_of(int64_t submitted_ms)
{
    return (struct log_place){.logs = {.dir = test_dir(), .owner = ""},
                              .cluster = "c",
                              .job_id = 7,
                              .submitted_ms = submitted_ms};
}

static void make_log_of(const char *owner, int64_t submitted_ms)
{
    const struct rundir_logs logs = {.dir = test_dir(), .owner = owner};
    char dir[PATH_MAX];
    struct err err;

    rundir_log_dir(dir, &logs, "c", 7, submitted_ms);
    CHECK(rundir_make(dir, 0700, &err) == STATUS_OK);
    CHECK(rundir_write(dir, "g1-rank0.log", "x", 1, &err) == STATUS_OK);
}

static void make_log(int64_t submitted_ms)
{
    make_log_of("", submitted_ms);
}

static bool finds(int64_t submitted_ms, const char *name)
{
    const struct log_place folder = folder_of(submitted_ms);
    char dir[PATH_MAX], expected[PATH_MAX];

    log_place_find(dir, &folder, "g1-rank0.log");
    rundir_join(expected, test_dir(), name);
    return strcmp(dir, expected) == 0;
}

TEST(a_folder_is_of_one_job_alone)
{
    make_log(1000);
    CHECK(finds(1000, "c-7-1000"));
    CHECK(finds(2000, "c-7-2000")); /* not there, so there is no log */
    CHECK(finds(0, "c-7-1000"));    /* an earlier server does not say more */
    make_log(2000);
    CHECK(finds(1000, "c-7-1000"));
    CHECK(finds(2000, "c-7-2000"));
    CHECK(finds(0, "c-7"));
}

/* Several launcherds use the folder. */
TEST(a_folder_of_another_launcherd_is_the_last_choice)
{
    static const char mine[] = "00112233445566778899aabbccddeeff", other[] = "ffeeddccbbaa99887766";
    struct log_place place = folder_of(1000);
    char dir[PATH_MAX];

    place.logs.owner = mine;
    make_log_of(other, 1000);
    log_place_find(dir, &place, "g1-rank0.log");
    CHECK(strstr(dir, "/c-7-1000.ffeeddccbbaa9988") != NULL); /* of an earlier state directory */
    place.submitted_ms = 0;
    log_place_find(dir, &place, "g1-rank0.log");
    CHECK(strstr(dir, "/c-7.0011223344556677") != NULL);
    place.submitted_ms = 1000;
    make_log(1000);
    log_place_find(dir, &place, "g1-rank0.log");
    CHECK(strcmp(strrchr(dir, '/'), "/c-7-1000") == 0); /* of an earlier release */
    make_log_of(mine, 1000);
    log_place_find(dir, &place, "g1-rank0.log");
    CHECK(strstr(dir, "/c-7-1000.0011223344556677") != NULL);
}

TEST(a_folder_of_0_1_0_is_of_a_job_from_before)
{
    struct timespec now;
    int64_t now_ms;

    make_log(0);
    (void)clock_gettime(CLOCK_REALTIME, &now);
    now_ms = (int64_t)now.tv_sec * 1000;
    CHECK(finds(now_ms - 5000, "c-7"));
    CHECK(!finds(now_ms + LOG_PLACE_SLACK_MS + 60000, "c-7"));
    CHECK(finds(0, "c-7"));
}

/* -- shims of other servers -- */

TEST(the_end_of_another_servers_shim_is_kept_for_a_while)
{
    begin();
    launcher.options.keep_us = DAY_US;
    (void)adopt(1, "gone", false, NULL);
    (void)adopt(2, "one", false, NULL);
    (void)event(1, LAUNCHER_EVENT_ADOPTED);
    (void)event(2, LAUNCHER_EVENT_SERVER_OPEN);
    (void)welcome(3, "one");
    CHECK(strstr(event(DAY_US, LAUNCHER_EVENT_TICK), "remove") == NULL);
    CHECK(strstr(event(DAY_US + 1, LAUNCHER_EVENT_TICK), "remove(1.1)") != NULL);
    CHECK(strstr(event(3 * DAY_US, LAUNCHER_EVENT_TICK), "remove") ==
          NULL); /* its own server's stays */
}

TEST(the_time_before_launcherd_started_counts)
{
    struct launcher_shim shim = {
        .job_id = 1, .generation = 1, .slot_mask = 1, .local_count = 1, .cluster = "gone"};

    begin();
    launcher.options.keep_us = DAY_US;
    (void)step(1, (struct launcher_event){.type = LAUNCHER_EVENT_ADOPT,
                                          .shim = &shim,
                                          .age_us = 2 * DAY_US,
                                          .text = "ended with a restart of the node"});
    (void)event(1, LAUNCHER_EVENT_ADOPTED);
    CHECK(strstr(event(2, LAUNCHER_EVENT_SERVER_OPEN), "remove") ==
          NULL); /* it may be this server's */
    (void)welcome(3, "one");
    CHECK(strstr(event(4, LAUNCHER_EVENT_TICK), "remove(1.1)") != NULL);
}

/* The number and the generation are the same, and the job is another one. */
TEST(another_job_with_the_same_number_is_not_taken_for_a_repeated_order)
{
    struct msg msg = {.type = MSG_TYPE_START};

    connected();
    msg.start = (struct msg_start){.cluster = "one",
                                   .job_id = 1,
                                   .generation = 1,
                                   .local_count = 1,
                                   .world = 1,
                                   .slot_mask = 1,
                                   .submitted_ms = 1000};
    CHECK_STR(server(10, &msg), "spawn(1.1)");
    CHECK_STR(server(11, &msg), "");
    msg.start.submitted_ms = 2000;
    CHECK_STR(server(12, &msg), "shim_report(1.1 ended)");
}

TEST_MAIN
