/* The files: lines of metrics.jsonl, run directories of TensorBoard, and what a full disk or a kill
 * leaves of them. */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/event_reader.h"
#include "tests/lib/test.h"
#include "worker/metrics/board.h"
#include "worker/metrics/line.h"

static struct err err;
static char path[512];

static const char *in_dir(const char *name)
{
    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    return path;
}

/* The file's bytes; the caller frees them. */
static char *read_all(const char *name, size_t *byte_count)
{
    FILE *file = fopen(name, "re");
    char *bytes = calloc(1, 1 << 20);

    CHECK(file != NULL && bytes != NULL);
    *byte_count = fread(bytes, 1, (1 << 20) - 1, file);
    (void)fclose(file);
    return bytes;
}

/* Files cannot grow over so many bytes: as a full disk, but for the name of the error. */
static void limit_files(rlim_t byte_count)
{
    struct rlimit limit = {0};

    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = byte_count;
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static const struct metrics_line step = {
    .kind = LINE_STEP,
    .time_us = 1767225599123456, /* 2025-12-31T23:59:59.123456Z */
    .epoch = 2,
    .step = 300,
    .loss = 0.1,
    .acc1 = 12.5,
    .acc5 = NAN,
    .images_per_s = 5210.25,
    .lr = 0.01,
    .step_ms = 19.2,
    .loss_scale = 65536,
    .skipped = 3,
};

TEST(a_step_as_json)
{
    struct buf buf = {0};

    metrics_line_put(&buf, &step);
    buf_add(&buf, "", 1);
    CHECK_STR(buf.bytes,
              "{\"kind\":\"step\",\"time\":\"2025-12-31T23:59:59.123Z\",\"epoch\":2,\"step\":300,"
              "\"loss\":0.10000000000000001,\"acc1\":12.5,\"acc5\":null,\"lr\":0.01,"
              "\"images_per_s\":5210.25,\"step_ms\":19.2,\"data_ms\":0,\"comm_ms\":0,"
              "\"exposed_ms\":0,\"loss_scale\":65536,\"skipped\":3}\n");
    buf_free(&buf);
}

TEST(other_kinds_as_json)
{
    static const char *const names[] = {"validation", "epoch", "checkpoint", "resume", "restart"};

    for (int i = 0; i < 5; i++) {
        struct metrics_line line = step;
        struct buf buf = {0};
        char want[64];

        line.kind = (enum line_kind)(LINE_VALIDATION + i);
        line.world = 4;
        line.generation = 9;
        metrics_line_put(&buf, &line);
        buf_add(&buf, "", 1);
        (void)snprintf(want, sizeof want, "{\"kind\":\"%s\",\"time\":", names[i]);
        CHECK(strncmp(buf.bytes, want, strlen(want)) == 0);
        CHECK_EQ(strstr(buf.bytes, "\"generation\":9,\"world\":4}") != NULL, i >= 3);
        CHECK_EQ(strstr(buf.bytes, "\"loss\":") != NULL, i < 2);
        CHECK_EQ(strstr(buf.bytes, "\"unreadable\":0}") != NULL, i == 1);
        buf_free(&buf);
    }
}

TEST(lines_are_appended)
{
    struct line_file file;
    size_t byte_count;
    bool has_lines;
    char *text;

    for (int i = 0; i < 2; i++) {
        CHECK_EQ(line_file_open(&file, in_dir("m.jsonl"), &has_lines, &err), STATUS_OK);
        CHECK_EQ(has_lines, i == 1);
        CHECK_EQ(line_file_write(&file, &step, &err), STATUS_OK);
        append_close(&file.file);
    }
    text = read_all(in_dir("m.jsonl"), &byte_count);
    CHECK(strncmp(text, "{\"kind\"", 7) == 0 && strstr(text, "}\n{\"kind\"") != NULL);
    CHECK_EQ(text[byte_count - 1], '\n');
    free(text);
}

/* The one before was killed inside a line: what follows is on a line of its own. */
TEST(a_torn_line_is_closed)
{
    struct line_file file;
    FILE *torn = fopen(in_dir("m.jsonl"), "we");
    size_t byte_count;
    bool has_lines;
    char *text;

    CHECK(torn != NULL && fputs("{\"kind\":\"st", torn) >= 0 && fclose(torn) == 0);
    CHECK_EQ(line_file_open(&file, in_dir("m.jsonl"), &has_lines, &err), STATUS_OK);
    CHECK_EQ(line_file_write(&file, &step, &err), STATUS_OK);
    CHECK_EQ(line_file_write(&file, &step, &err), STATUS_OK);
    append_close(&file.file);
    text = read_all(in_dir("m.jsonl"), &byte_count);
    CHECK(strncmp(text, "{\"kind\":\"st\n{\"kind\":\"step\"", 26) == 0);
    CHECK(strstr(text, "\n\n") == NULL);
    free(text);
}

/* A write that did not fit is taken back, so the file has whole lines, also of what comes later. */
TEST(a_line_that_does_not_fit_is_taken_back)
{
    struct line_file file;
    size_t byte_count, whole;
    bool has_lines;
    char *text;

    CHECK_EQ(line_file_open(&file, in_dir("m.jsonl"), &has_lines, &err), STATUS_OK);
    CHECK_EQ(line_file_write(&file, &step, &err), STATUS_OK);
    free(read_all(in_dir("m.jsonl"), &whole));
    limit_files(whole + 20);
    CHECK_EQ(line_file_write(&file, &step, &err), STATUS_IO);
    CHECK(strstr(err.text, "cannot write: ") != NULL);
    free(read_all(in_dir("m.jsonl"), &byte_count));
    CHECK_EQ(byte_count, whole);
    limit_files(RLIM_INFINITY);
    CHECK_EQ(line_file_write(&file, &step, &err), STATUS_OK);
    append_close(&file.file);
    text = read_all(in_dir("m.jsonl"), &byte_count);
    CHECK_EQ(byte_count, 2 * whole);
    CHECK_EQ(memcmp(text, text + whole, whole), 0);
    free(text);
}

TEST(a_folder_that_is_not_there)
{
    struct line_file file;
    bool has_lines;

    CHECK_EQ(line_file_open(&file, in_dir("none/m.jsonl"), &has_lines, &err), STATUS_IO);
    CHECK_STR(err.text, "cannot open: No such file or directory");
}

/* -- boards -- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Paths of the event files, in the order in which readers take them. The caller frees each. */
static size_t event_files(const char *folder, char *files[8])
{
    DIR *dir = opendir(folder);
    size_t count = 0;

    CHECK(dir != NULL);
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        if (strstr(entry->d_name, "tfevents") != NULL) {
            CHECK(count < 8);
            CHECK(asprintf(&files[count], "%s/%s", folder, entry->d_name) > 0);
            count++;
        }
    (void)closedir(dir);
    qsort(files, count, sizeof *files, by_name);
    return count;
}

/* "v" a version, "s12" a START of step 12, "3" values of step 3; of all files in order. */
static const char *trace_of(const char *folder)
{
    static char text[512];
    static struct event_seen seen;
    char *files[8];
    const size_t count = event_files(folder, files);
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        size_t byte_count, at = 0;
        char *bytes = read_all(files[i], &byte_count);
        bool found = true;

        while (found) {
            CHECK_EQ(event_read((uint8_t *)bytes, byte_count, &at, &seen, &found, &err), STATUS_OK);
            if (!found)
                break;
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%.0d%s ",
                                     seen.version[0] != '\0' ? "v"
                                     : seen.session == 1     ? "s"
                                                             : "",
                                     (int)seen.step, i == 1 && at == byte_count ? "." : "");
        }
        CHECK_EQ(at, byte_count);
        free(bytes);
        free(files[i]);
    }
    return text;
}

static void run(const struct board_options *options, uint32_t from, uint32_t to)
{
    struct board *board;

    CHECK_EQ(board_open(&board, options, &err), STATUS_OK);
    CHECK_EQ(board_write(board, 0, NULL, 0, &err), STATUS_OK);
    for (uint32_t i = from; i <= to; i++) {
        const struct event_value value = {.tag = "Lr", .scalar = i};

        CHECK_EQ(board_write(board, i, &value, 1, &err), STATUS_OK);
    }
    board_close(&board);
}

/* Runs within a second, and with the process's own number: the names keep their order. */
TEST(a_resume_purges)
{
    struct board_options options = {.folder = in_dir("deep/er/run")};

    run(&options, 1, 4);
    CHECK_STR(trace_of(options.folder), "v 1 2 3 4 ");
    options.after_step = 2;
    run(&options, 3, 5);
    CHECK_STR(trace_of(options.folder), "v 1 2 3 4 v s3 3 4 5. ");
    options.after_step = 0; /* another training in the same folder */
    run(&options, 1, 1);
    CHECK_STR(trace_of(options.folder), "v 1 2 3 4 v s3 3 4 5. v s1 1 ");
    options.is_apart = true;
    run(&options, 1, 1);
    CHECK_STR(trace_of(options.folder), "v 1 2 3 4 v s3 3 4 5. v s1 1 v 1 ");
}

/* Another machine's clock is ahead, and its name comes later in the alphabet. */
TEST(a_later_file_has_a_later_name)
{
    const struct board_options options = {.folder = in_dir("run"), .after_step = 3};
    char *files[8], name[600];
    FILE *file;

    run(&options, 4, 4);
    (void)snprintf(name, sizeof name, "%s/events.out.tfevents.%lld.zz.999999999.0", options.folder,
                   (long long)time(NULL) + 1000);
    file = fopen(name, "we");
    CHECK(file != NULL && fclose(file) == 0);
    run(&options, 4, 4);
    CHECK_EQ(event_files(options.folder, files), 3);
    CHECK(strstr(files[1], ".zz.") != NULL);
    for (int i = 0; i < 3; i++)
        free(files[i]);
}

TEST(two_writers_of_a_folder)
{
    struct board_options options = {.folder = in_dir("run")};
    struct board *first, *second;

    CHECK_EQ(board_open(&first, &options, &err), STATUS_OK);
    CHECK_EQ(board_open(&second, &options, &err), STATUS_CONFLICT);
    CHECK(strstr(err.text, "another process writes there") != NULL && second == NULL);
    options.may_share = true;
    CHECK_EQ(board_open(&second, &options, &err), STATUS_OK);
    board_close(&second);
    board_close(&first);
    options.may_share = false;
    CHECK_EQ(board_open(&first, &options, &err), STATUS_OK);
    board_close(&first);
}

TEST(a_file_in_place_of_the_folder)
{
    const struct board_options options = {.folder = in_dir("run/deeper")};
    struct board *board;
    char file_path[512];
    FILE *file;

    (void)snprintf(file_path, sizeof file_path, "%s/run", test_dir());
    file = fopen(file_path, "we");
    CHECK(file != NULL && fclose(file) == 0);
    CHECK_EQ(board_open(&board, &options, &err), STATUS_IO);
    CHECK(board == NULL && strstr(err.text, "cannot make the folder: ") != NULL);
}

/* Records that do not fit are lost; those before and after them are whole. The head is made up for
 * where even that did not fit. */
TEST(a_full_disk_costs_records)
{
    const struct event_value value = {.tag = "Lr", .scalar = 1};
    const struct board_options options = {.folder = in_dir("run"), .after_step = 6};
    struct board *board;

    CHECK_EQ(board_open(&board, &options, &err), STATUS_OK);
    limit_files(10);
    CHECK_EQ(board_write(board, 7, &value, 1, &err), STATUS_IO);
    CHECK_STR(trace_of(options.folder), "");
    limit_files(160);
    CHECK_EQ(board_write(board, 8, &value, 1, &err), STATUS_OK);
    CHECK_EQ(board_write(board, 9, &value, 1, &err), STATUS_OK);
    CHECK_EQ(board_write(board, 10, &value, 1, &err), STATUS_IO);
    limit_files(RLIM_INFINITY);
    CHECK_EQ(board_write(board, 11, &value, 1, &err), STATUS_OK);
    board_close(&board);
    CHECK_STR(trace_of(options.folder), "v s7 8 9 11 ");
}

TEST_MAIN
