/* CIFAR-10's binary files. They have to be as large as the real ones, so only the pictures that a
 * test looks at are written; the others are holes in the file, which read as zeros. */
#include "worker/data/cifar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/test.h"

enum { RECORDS = 10000, MIDDLE = 4321, RECORD_BYTES = 3073, FILE_BYTES = RECORDS * RECORD_BYTES };

static const char *path_of(const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    return path;
}

/* Picture `i` has label (i + first) % 10; its bytes tell its number, the channel and the place. */
static void write_record(FILE *file, size_t i, unsigned first)
{
    uint8_t record[RECORD_BYTES] = {(uint8_t)((i + first) % 10)};

    for (size_t at = 0; at < RECORD_BYTES - 1; at++)
        record[1 + at] = (uint8_t)(i * 7 + at / 1024 * 50 + at % 1024);
    CHECK_EQ(fseek(file, (long)(i * RECORD_BYTES), SEEK_SET), 0);
    CHECK_EQ(fwrite(record, 1, sizeof record, file), sizeof record);
}

static void make_file(const char *name, unsigned first)
{
    FILE *file = fopen(path_of(name), "wb");

    CHECK(file != NULL);
    write_record(file, 0, first);
    write_record(file, MIDDLE, first);
    write_record(file, RECORDS - 1, first);
    CHECK_EQ(ftell(file), FILE_BYTES);
    CHECK_EQ(fclose(file), 0);
}

static void check_image(struct source *set, int64_t index, int64_t label, size_t number)
{
    uint8_t image[3072];
    int64_t found = -1;
    struct err err = {0};

    CHECK_EQ(set->ops->read(set, NULL, 0, index, image, &found, &err), STATUS_OK);
    CHECK_EQ(found, label);
    for (size_t at = 0; at < 1024; at++)
        for (size_t channel = 0; channel < 3; channel++)
            CHECK_EQ(image[at * 3 + channel], (uint8_t)(number * 7 + channel * 50 + at));
}

TEST(files_in_the_folder_and_below)
{
    static const char *const names[] = {"test_batch.bin", "cifar-10-batches-bin/test_batch.bin"};

    CHECK(!cifar_is_there(test_dir()));
    CHECK_EQ(mkdir(path_of("cifar-10-batches-bin"), 0700), 0);
    for (int i = 0; i < 2; i++) {
        struct source *set;
        struct err err = {0};

        make_file(names[i], 3);
        CHECK(cifar_is_there(test_dir()));
        CHECK_EQ(cifar_read(&set, test_dir(), false, &err), STATUS_OK);
        CHECK_EQ(set->count, RECORDS);
        CHECK_EQ(set->shape.classes, 10);
        check_image(set, 0, 3, 0);
        check_image(set, MIDDLE, 4, MIDDLE);
        check_image(set, 9999, 2, 9999);
        set->ops->close(set);
        CHECK_EQ(unlink(path_of(names[i])), 0);
    }
}

TEST(five_training_files)
{
    struct source *set;
    struct err err = {0};
    char name[32];

    for (unsigned i = 1; i <= 5; i++) {
        (void)snprintf(name, sizeof name, "data_batch_%u.bin", i);
        make_file(name, i);
        if (i == 4) {
            CHECK_EQ(cifar_read(&set, test_dir(), true, &err), STATUS_NOT_FOUND);
            CHECK(strstr(err.text, "data_batch_5.bin") != NULL);
        }
    }
    CHECK_EQ(cifar_read(&set, test_dir(), true, &err), STATUS_OK);
    CHECK_EQ(set->count, 5 * RECORDS);
    check_image(set, 0, 1, 0);
    check_image(set, 2 * RECORDS + MIDDLE, 4, MIDDLE);
    check_image(set, 49999, 4, 9999);
    set->ops->close(set);
}

static void check_refused(enum status expected, const char *words)
{
    struct source *set;
    struct err err = {0};
    enum status status = cifar_read(&set, test_dir(), false, &err);

    if (status == STATUS_OK)
        FAIL("taken (expected: %s)", words);
    CHECK_EQ(status, expected);
    if (strstr(err.text, words) == NULL)
        FAIL("expected \"%s\" in: %s", words, err.text);
}

static void cut_or_grow(const char *name, off_t byte_count)
{
    CHECK_EQ(truncate(path_of(name), byte_count), 0);
}

static void set_byte(const char *name, long at, int value)
{
    FILE *file = fopen(path_of(name), "r+b");

    CHECK(file != NULL);
    CHECK_EQ(fseek(file, at, SEEK_SET), 0);
    CHECK_EQ(fputc(value, file), value);
    CHECK_EQ(fclose(file), 0);
}

TEST(what_is_refused)
{
    make_file("test_batch.bin", 3);
    cut_or_grow("test_batch.bin", FILE_BYTES + 1);
    check_refused(STATUS_BAD_INPUT, "test_batch.bin: expected 30730000 bytes");
    cut_or_grow("test_batch.bin", FILE_BYTES - 1);
    check_refused(STATUS_BAD_INPUT, "found 30729999");
    cut_or_grow("test_batch.bin", 0);
    check_refused(STATUS_BAD_INPUT, "found 0");
    make_file("test_batch.bin", 3);
    set_byte("test_batch.bin", 17L * RECORD_BYTES, 10);
    check_refused(STATUS_BAD_INPUT, "picture 17 has 10");
    CHECK_EQ(unlink(path_of("test_batch.bin")), 0);
    check_refused(STATUS_NOT_FOUND, "--fetch cifar10");
    make_file("cifar-10-binary.tar.gz", 3);
    check_refused(STATUS_UNSUPPORTED, "tar -xzf cifar-10-binary.tar.gz");
}

TEST_MAIN
