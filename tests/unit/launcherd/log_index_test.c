/* The index of a log: which bytes went to which stream, and what a reader gets from it. */
#include "launcherd/process/log_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/test.h"

static char folder[64], log_path[PATH_MAX], index_path[PATH_MAX];

static void begin(void)
{
    (void)snprintf(folder, sizeof folder, "/tmp/ddp-log-index-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(log_path, sizeof log_path, "%s/g1-rank0.log", folder);
    (void)snprintf(index_path, sizeof index_path, "%s/g1-rank0.index", folder);
}

static void end(void)
{
    (void)unlink(index_path);
    CHECK_EQ(rmdir(folder), 0);
}

/* "o3 e2": the runs of these bytes. */
static uint32_t read_runs(uint64_t offset, uint32_t byte_count, char *text)
{
    struct part_log_run runs[LOG_RUNS_MAX];
    uint32_t count = 0, covered = log_index_read(log_path, offset, byte_count, runs, &count);
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++)
        used +=
            (size_t)sprintf(text + used, "%s%c%u@%lld", i > 0 ? " " : "",
                            runs[i].is_error ? 'e' : 'o', runs[i].bytes, (long long)runs[i].at_ms);
    return covered;
}

TEST(runs_of_a_log)
{
    struct log_index index;
    char text[4096];

    begin();
    log_index_open(&index, log_path);
    CHECK_EQ(read_runs(0, 10, text), 0); /* no file: not known */
    log_index_note(&index, 0, false, 1000);
    log_index_note(&index, 5, false, 1050); /* too soon for a record of its own */
    log_index_note(&index, 10, true, 1050);
    log_index_note(&index, 12, false, 1050);
    log_index_note(&index, 20, false, 1150);
    log_index_close(&index);
    CHECK_EQ(read_runs(0, 30, text), 30);
    CHECK_STR(text, "o10@1000 e2@1050 o8@1050 o10@1150");
    CHECK_EQ(read_runs(11, 5, text), 5);
    CHECK_STR(text, "e1@1050 o4@1050");
    CHECK_EQ(read_runs(10, 2, text), 2);
    CHECK_STR(text, "e2@1050");
    CHECK_EQ(read_runs(1000, 7, text), 7);
    CHECK_STR(text, "o7@1150");
    end();
}

TEST(a_reader_gets_as_much_as_there_is_room_for)
{
    struct log_index index;
    static char text[16384];

    begin();
    log_index_open(&index, log_path);
    for (uint64_t i = 0; i < 2 * LOG_RUNS_MAX; i++)
        log_index_note(&index, 3 * i, i % 2 != 0, 5);
    CHECK_EQ(read_runs(0, 6 * LOG_RUNS_MAX, text), 3 * LOG_RUNS_MAX);
    CHECK_EQ(read_runs(3 * LOG_RUNS_MAX, 3 * LOG_RUNS_MAX, text), 3 * LOG_RUNS_MAX);
    log_index_close(&index);
    end();
}

TEST(a_cut_forgets_what_is_gone)
{
    struct log_index index;
    struct stat stat_of;
    char text[4096];

    begin();
    log_index_open(&index, log_path);
    for (uint64_t i = 0; i < 1000; i++)
        log_index_note(&index, 10 * i, i % 2 != 0, (int64_t)i + 1);
    log_index_cut(&index, 1005, 1069, 9005);
    CHECK_EQ(stat(index_path, &stat_of), 0);
    CHECK_EQ(stat_of.st_size, (101 + 2 + 99) * 16);
    CHECK_EQ(read_runs(995, 74, text), 74);
    CHECK_STR(text, "e5@100 o5@101 e64@901"); /* before the mark, and the mark */
    CHECK_EQ(read_runs(9005, 10, text), 10);
    CHECK_STR(text, "o5@901 e5@902");
    log_index_note(&index, 10000, false, 2000); /* continues after the kept part */
    CHECK_EQ(read_runs(9990, 20, text), 20);
    CHECK_STR(text, "e10@1000 o10@2000");
    log_index_close(&index);
    end();
}

TEST(a_deleted_index_is_made_again)
{
    struct log_index index;
    char text[4096];

    begin();
    log_index_open(&index, log_path);
    log_index_note(&index, 0, true, 1);
    CHECK_EQ(unlink(index_path), 0);
    log_index_note(&index, 10, false, 2);
    CHECK_EQ(read_runs(0, 20, text), 20);
    CHECK_STR(text, "o10@0 o10@2"); /* unknown bytes count as stdout of an unknown time */
    log_index_close(&index);
    end();
}

TEST_MAIN
