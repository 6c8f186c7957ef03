/* The thread of a shim that writes logs, without a shim: under TSan the clone() of a shim's spawn hides all
 * later locks of its thread, so there every access of both threads would look like a race. */
#include "launcherd/shim/log_writer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/test.h"

#define FILES 3u
#define PIECES 400u
#define PIECE_BYTES 20000u

static struct log_writer writer;
static uint32_t rooms, flushes;
static size_t left_at_flush;

static void on_room(void *owner)
{
    (void)owner;
    rooms++;
}

static void on_flushed(void *owner, size_t left_bytes)
{
    (void)owner;
    left_at_flush = left_bytes;
    flushes++;
}

static void path_of(uint32_t file, char path[256])
{
    (void)snprintf(path, 256, "%s/%u.log", test_dir(), file);
}

/* Waits for space in the queue, as an output does. */
static void add(uv_loop_t *loop, struct log_file *file, char byte)
{
    static char piece[PIECE_BYTES];
    uint32_t before = rooms;

    memset(piece, byte, sizeof piece);
    if (!log_writer_has_room(&writer))
        while (rooms == before)
            (void)uv_run(loop, UV_RUN_ONCE);
    CHECK(log_writer_takes(&writer));
    CHECK(log_writer_add(&writer, file,
                         &(struct log_piece){.bytes = piece, .byte_count = sizeof piece}));
}

static void check_file(uint32_t number)
{
    static char got[PIECE_BYTES];
    char path[256];
    uint32_t pieces = 0;

    path_of(number, path);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (fread(got, 1, sizeof got, file) == sizeof got) {
        char wanted = (char)('a' + pieces % 26);
        CHECK(got[0] == wanted && got[PIECE_BYTES - 1] == wanted);
        pieces++;
    }
    (void)fclose(file);
    CHECK_EQ(pieces, PIECES);
}

TEST(every_byte_is_written_in_order)
{
    static struct log_file files[FILES];
    char path[256];
    uv_loop_t loop;
    struct err err;

    CHECK_EQ(uv_loop_init(&loop), 0);
    writer = (struct log_writer){.on_room = on_room, .on_flushed = on_flushed};
    CHECK_EQ(log_writer_open(&writer, &loop, &err), STATUS_OK);
    for (uint32_t i = 0; i < FILES; i++) {
        path_of(i, path);
        CHECK_EQ(log_file_open(&files[i], path, 0, &err), STATUS_OK);
    }
    for (uint32_t i = 0; i < PIECES; i++)
        for (uint32_t k = 0; k < FILES; k++)
            add(&loop, &files[k], (char)('a' + i % 26));
    for (uint32_t i = 0; i < FILES; i++)
        log_writer_add_close(&writer, &files[i]);
    flushes = 0;
    if (!log_writer_flush(&writer))
        while (flushes == 0)
            (void)uv_run(&loop, UV_RUN_ONCE);
    CHECK(log_writer_flush(&writer)); /* nothing is left */
    for (uint32_t i = 0; i < FILES; i++)
        check_file(i);
    CHECK(log_writer_close(&writer));
    CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(uv_loop_close(&loop), 0);
}

/* Its lock is not there: a lock that only its owner may open would tell of one who took it. */
TEST(a_writer_that_is_not_open_has_nothing_to_flush)
{
    pthread_mutexattr_t attributes;

    writer = (struct log_writer){.on_room = on_room, .on_flushed = on_flushed};
    CHECK_EQ(pthread_mutexattr_init(&attributes), 0);
    CHECK_EQ(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK), 0);
    CHECK_EQ(pthread_mutex_init(&writer.lock, &attributes), 0);
    CHECK_EQ(pthread_mutex_lock(&writer.lock), 0);
    CHECK(log_writer_flush(&writer));
    CHECK_EQ(pthread_mutex_unlock(&writer.lock), 0); /* it was still ours */
    CHECK_EQ(pthread_mutex_destroy(&writer.lock), 0);
    CHECK_EQ(pthread_mutexattr_destroy(&attributes), 0);
}

/* How many looks the end of a job waits for a disk that takes one piece between `every` looks. */
static uint32_t looks_at(uint32_t every, uint64_t pieces)
{
    struct log_patience patience = log_patience_begin(7);
    uint64_t done = 7;
    uint32_t looks = 0;

    do {
        looks++;
        if (looks % every == 0 && done < 7 + pieces)
            done++;
    } while (!log_patience_ends(&patience, done));
    return looks;
}

TEST(a_slow_disk_is_waited_for_and_one_that_hangs_is_not)
{
    CHECK_EQ(looks_at(1, 0), LOG_IDLE_LOOKS);
    CHECK_EQ(looks_at(1, 10), 10 + LOG_IDLE_LOOKS);
    CHECK_EQ(looks_at(2, 4), 8 + LOG_IDLE_LOOKS);
    CHECK_EQ(looks_at(1, 1000), LOG_LOOKS_MAX);
}

/* Takes a piece only when the test lets it, as a slow disk does. */
static void take_piece(void *argument)
{
    char byte;

    CHECK_EQ(read(*(int *)argument, &byte, 1), 1);
}

static void let_one(uv_timer_t *timer)
{
    CHECK_EQ(write(*(int *)timer->data, "", 1), 1);
}

/* The old limit was 2 s in all. */
TEST(a_flush_goes_on_while_the_disk_takes_something)
{
    uv_loop_t loop;
    uv_timer_t slow;
    struct err err;
    int ends[2];

    CHECK_EQ(pipe(ends), 0);
    CHECK_EQ(uv_loop_init(&loop), 0);
    writer = (struct log_writer){.on_room = on_room, .on_flushed = on_flushed};
    CHECK_EQ(log_writer_open(&writer, &loop, &err), STATUS_OK);
    for (uint32_t i = 0; i < 6; i++)
        CHECK(log_writer_add_work(&writer, take_piece, &ends[0]));
    CHECK_EQ(uv_timer_init(&loop, &slow), 0);
    slow.data = &ends[1];
    CHECK_EQ(uv_timer_start(&slow, let_one, LOG_LOOK_MS / 2, LOG_LOOK_MS / 2), 0);
    flushes = 0;
    CHECK(!log_writer_flush(&writer));
    while (flushes == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    CHECK(log_writer_flush(&writer)); /* all six were taken */
    CHECK_EQ(left_at_flush, 0);
    uv_close((uv_handle_t *)&slow, NULL);
    CHECK(log_writer_close(&writer));
    CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(uv_loop_close(&loop), 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* What is not written is told. */
TEST(a_flush_of_a_disk_that_takes_nothing_ends)
{
    static struct log_file file;
    char path[256];
    uv_loop_t loop;
    struct err err;
    int ends[2];

    CHECK_EQ(pipe(ends), 0);
    CHECK_EQ(uv_loop_init(&loop), 0);
    writer = (struct log_writer){.on_room = on_room, .on_flushed = on_flushed};
    CHECK_EQ(log_writer_open(&writer, &loop, &err), STATUS_OK);
    path_of(0, path);
    CHECK_EQ(log_file_open(&file, path, 0, &err), STATUS_OK);
    CHECK(log_writer_add_work(&writer, take_piece, &ends[0]));
    CHECK(log_writer_add(&writer, &file, &(struct log_piece){.bytes = "12345", .byte_count = 5}));
    flushes = 0;
    CHECK(!log_writer_flush(&writer));
    while (flushes == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    CHECK_EQ(left_at_flush, 5);
    CHECK_EQ(write(ends[1], "", 1), 1);
    log_writer_add_close(&writer, &file);
    CHECK(log_writer_close(&writer));
    CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(uv_loop_close(&loop), 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

TEST(what_is_queued_is_written_at_the_end)
{
    static struct log_file file;
    char path[256], text[8] = "";
    uv_loop_t loop;
    struct err err;

    CHECK_EQ(uv_loop_init(&loop), 0);
    writer = (struct log_writer){.on_room = on_room, .on_flushed = on_flushed};
    CHECK_EQ(log_writer_open(&writer, &loop, &err), STATUS_OK);
    path_of(9, path);
    CHECK_EQ(log_file_open(&file, path, 0, &err), STATUS_OK);
    CHECK(log_writer_add(&writer, &file, &(struct log_piece){.bytes = "last\n", .byte_count = 5}));
    log_writer_add_close(&writer, &file);
    CHECK(log_writer_close(&writer));
    FILE *read = fopen(path, "r");
    CHECK(read != NULL && fgets(text, sizeof text, read) != NULL);
    (void)fclose(read);
    CHECK_STR(text, "last\n");
    CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(uv_loop_close(&loop), 0);
}

/* A limit on the size of files stands in for a full disk. */
TEST(what_a_full_disk_refused_is_told_in_the_log)
{
    struct log_file file;
    struct rlimit before, small;
    char path[256], text[200] = "";
    struct err err;

    (void)signal(SIGXFSZ, SIG_IGN);
    path_of(8, path);
    CHECK_EQ(log_file_open(&file, path, 0, &err), STATUS_OK);
    log_file_write(&file, &(struct log_piece){.bytes = "first\n", .byte_count = 6});
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){6, before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    log_file_write(&file, &(struct log_piece){.bytes = "lost\n", .byte_count = 5});
    log_file_write(&file, &(struct log_piece){.bytes = "lost, too\n", .byte_count = 10});
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    log_file_write(&file, &(struct log_piece){.bytes = "last\n", .byte_count = 5});
    log_file_close(&file);
    FILE *read = fopen(path, "r");
    CHECK(read != NULL && fread(text, 1, sizeof text - 1, read) > 0);
    (void)fclose(read);
    CHECK_STR(text, "first\n\n[... 15 bytes lost: the disk of the log was full ...]\nlast\n");
}

/* The line overwrites bytes that are on the disk already, since the disk accepts no more. */
TEST(a_disk_that_is_full_until_the_end_is_told_in_the_log)
{
    struct log_file file;
    struct rlimit before, small;
    char path[256], text[200] = "";
    struct err err;

    (void)signal(SIGXFSZ, SIG_IGN);
    path_of(7, path);
    CHECK_EQ(log_file_open(&file, path, 0, &err), STATUS_OK);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){80, before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    memset(text, 'x', 75);
    log_file_write(&file, &(struct log_piece){.bytes = text, .byte_count = 75});
    memset(text, 'y', 100);
    log_file_write(&file, &(struct log_piece){.bytes = text, .byte_count = 100});
    log_file_close(&file);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    FILE *read = fopen(path, "r");
    memset(text, 0, sizeof text);
    CHECK(read != NULL && fread(text, 1, sizeof text - 1, read) > 0);
    (void)fclose(read);
    CHECK_STR(text,
              "xxxxxxxxxxxxxxxxxxxxxxxx\n[... 151 bytes lost: the disk of the log was full ...]\n");
}

TEST(what_a_log_without_holes_does_not_keep_is_told_in_it)
{
    struct log_file file;
    char path[256], text[200] = "";
    struct err err;

    path_of(6, path);
    CHECK_EQ(log_file_open(&file, path, LOG_FILE_SIZE_MIN, &err), STATUS_OK);
    log_file_write(&file, &(struct log_piece){.bytes = "first\n", .byte_count = 6});
    file.is_full = true; /* as after a cut that its file system refused */
    log_file_write(&file, &(struct log_piece){.bytes = "more\n", .byte_count = 5});
    log_file_write(&file, &(struct log_piece){.bytes = "more\n", .byte_count = 5});
    log_file_close(&file);
    FILE *read = fopen(path, "r");
    CHECK(read != NULL && fread(text, 1, sizeof text - 1, read) > 0);
    (void)fclose(read);
    CHECK_STR(text, "first\n\n[... 10 bytes not kept: the log has its largest size, and its file "
                    "system cannot cut it ...]\n");
}

/* `before`: how many pieces the log has when it is deleted. */
static void check_deleted(uint32_t before)
{
    static char bytes[PIECE_BYTES];
    const struct log_piece piece = {.bytes = bytes, .byte_count = sizeof bytes};
    const uint32_t pieces = 4 * LOG_FILE_SIZE_MIN / PIECE_BYTES;
    struct log_file file;
    struct stat info;
    char path[256], last[PIECE_BYTES], mark[2 * 64];
    struct err err;

    memset(bytes, 'x', sizeof bytes);
    path_of(9, path);
    CHECK_EQ(log_file_open(&file, path, LOG_FILE_SIZE_MIN, &err), STATUS_OK);
    for (uint32_t i = 0; i < pieces; i++) {
        if (i == before)
            CHECK_EQ(unlink(path), 0);
        if (i == pieces - 1)
            memset(bytes, 'z', sizeof bytes);
        log_file_write(&file, &piece);
    }
    CHECK(!file.is_full);
    CHECK_EQ(fstat(file.fd, &info), 0);
    CHECK(info.st_blocks * 512 <= LOG_FILE_SIZE_MIN + 2 * 65536);
    log_file_close(&file);
    FILE *read = fopen(path, "r");
    CHECK(read != NULL && fseek(read, -(long)PIECE_BYTES, SEEK_END) == 0);
    CHECK_EQ(fread(last, 1, sizeof last, read), sizeof last);
    CHECK_BYTES(last, bytes, sizeof last);
    CHECK_EQ(fseek(read, LOG_FILE_SIZE_MIN / 4 - 64, SEEK_SET), 0);
    CHECK_EQ(fread(mark, 1, sizeof mark, read), sizeof mark);
    CHECK(memcmp(mark, "\n[... ", 6) == 0);
    (void)fclose(read);
}

/* As if its file system could not cut it. */
TEST(a_log_that_was_full_takes_output_again_when_it_is_deleted)
{
    struct log_file file;
    char path[256], text[9000];
    struct err err;
    size_t got;

    memset(text, 'x', 5000);
    path_of(6, path);
    CHECK_EQ(log_file_open(&file, path, 0, &err), STATUS_OK);
    log_file_write(&file, &(struct log_piece){.bytes = text, .byte_count = 5000});
    file.is_full = true;
    log_file_write(&file, &(struct log_piece){.bytes = "no\n", .byte_count = 3});
    CHECK_EQ(unlink(path), 0);
    log_file_write(&file, &(struct log_piece){.bytes = "again\n", .byte_count = 6});
    log_file_close(&file);
    FILE *read = fopen(path, "r");
    CHECK(read != NULL);
    memset(text, 0, sizeof text);
    got = fread(text, 1, sizeof text - 1, read);
    (void)fclose(read);
    CHECK(got > 5000 && text[4998] == ' ' && text[4999] == '\n');
    CHECK_STR(text + 5000, "[... this log was deleted: 5003 bytes are gone ...]\nagain\n");
}

/* As a cleaner of /tmp leaves it. */
TEST(a_log_is_made_again_with_its_folder)
{
    char top[] = "/tmp/ddp-logs-XXXXXX", all[64], folder[80], path[96], text[128] = "";
    struct log_file file;
    struct err err;
    FILE *read;

    CHECK(mkdtemp(top) != NULL);
    (void)snprintf(all, sizeof all, "%s/logs", top);
    (void)snprintf(folder, sizeof folder, "%s/job", all);
    (void)snprintf(path, sizeof path, "%s/g1-rank0.log", folder);
    CHECK(mkdir(all, 0700) == 0 && mkdir(folder, 0700) == 0);
    CHECK_EQ(log_file_open(&file, path, 0, &err), STATUS_OK);
    log_file_write(&file, &(struct log_piece){.bytes = "a\n", .byte_count = 2});
    test_remove_tree(all);
    log_file_write(&file, &(struct log_piece){.bytes = "b\n", .byte_count = 2});
    read = fopen(path, "r");
    CHECK(read != NULL);
    (void)fread(text, 1, sizeof text - 1, read);
    (void)fclose(read);
    CHECK_STR(text, " \n[... this log was deleted: 2 bytes are gone ...]\nb\n");
    test_remove_tree(top);
    log_file_write(&file, &(struct log_piece){.bytes = "c\n", .byte_count = 2});
    CHECK(!file.is_gone);
    CHECK_EQ(access(path, F_OK), 0);
    log_file_close(&file);
    test_remove_tree(top);
}

TEST(a_deleted_log_is_cut_like_others)
{
    check_deleted(0);   /* empty */
    check_deleted(3);   /* within the head */
    check_deleted(13);  /* at the end of the head, 262,144 bytes */
    check_deleted(14);  /* behind it */
    check_deleted(100); /* when it has been cut */
}

TEST_MAIN
