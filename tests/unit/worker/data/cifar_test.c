/* CIFAR-10's binary files. */
#include "worker/data/cifar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/test.h"

enum { RECORDS = 10000, RECORD_BYTES = 3073, FILE_BYTES = RECORDS * RECORD_BYTES };

static const char *path_of(const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    return path;
}

/* Picture i has label (i + first) % 10; its bytes tell its number, the channel and the place. */
static void fill(uint8_t *bytes, unsigned first)
{
    for (size_t i = 0; i < RECORDS; i++) {
        bytes[i * RECORD_BYTES] = (uint8_t)((i + first) % 10);
        for (size_t at = 0; at < RECORD_BYTES - 1; at++)
            bytes[i * RECORD_BYTES + 1 + at] = (uint8_t)(i * 7 + at / 1024 * 50 + at % 1024);
    }
}

static void write_file(const char *name, const uint8_t *bytes, size_t byte_count)
{
    FILE *file = fopen(path_of(name), "wb");

    CHECK(file != NULL);
    CHECK_EQ(fwrite(bytes, 1, byte_count, file), byte_count);
    CHECK_EQ(fclose(file), 0);
}

static uint8_t *make_test(const char *name)
{
    uint8_t *bytes = malloc(FILE_BYTES + 1);

    CHECK(bytes != NULL);
    fill(bytes, 3);
    write_file(name, bytes, FILE_BYTES);
    return bytes;
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

        free(make_test(names[i]));
        CHECK(cifar_is_there(test_dir()));
        CHECK_EQ(cifar_read(&set, test_dir(), false, &err), STATUS_OK);
        CHECK_EQ(set->count, RECORDS);
        CHECK_EQ(set->shape.classes, 10);
        check_image(set, 0, 3, 0);
        check_image(set, 9999, 2, 9999);
        set->ops->close(set);
        CHECK_EQ(unlink(path_of(names[i])), 0);
    }
}

TEST(five_training_files)
{
    uint8_t *bytes = malloc(FILE_BYTES);
    struct source *set;
    struct err err = {0};
    char name[32];

    CHECK(bytes != NULL);
    for (unsigned i = 1; i <= 5; i++) {
        (void)snprintf(name, sizeof name, "data_batch_%u.bin", i);
        fill(bytes, i);
        write_file(name, bytes, FILE_BYTES);
        if (i == 4) {
            CHECK_EQ(cifar_read(&set, test_dir(), true, &err), STATUS_NOT_FOUND);
            CHECK(strstr(err.text, "data_batch_5.bin") != NULL);
        }
    }
    free(bytes);
    CHECK_EQ(cifar_read(&set, test_dir(), true, &err), STATUS_OK);
    CHECK_EQ(set->count, 5 * RECORDS);
    check_image(set, 0, 1, 0);
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

TEST(what_is_refused)
{
    uint8_t *bytes = make_test("test_batch.bin");

    bytes[FILE_BYTES] = 0;
    write_file("test_batch.bin", bytes, FILE_BYTES + 1);
    check_refused(STATUS_BAD_INPUT, "test_batch.bin: expected 30730000 bytes");
    write_file("test_batch.bin", bytes, FILE_BYTES - 1);
    check_refused(STATUS_BAD_INPUT, "found 30729999");
    write_file("test_batch.bin", bytes, 0);
    check_refused(STATUS_BAD_INPUT, "found 0");
    bytes[17 * RECORD_BYTES] = 10;
    write_file("test_batch.bin", bytes, FILE_BYTES);
    check_refused(STATUS_BAD_INPUT, "picture 17 has 10");
    CHECK_EQ(unlink(path_of("test_batch.bin")), 0);
    check_refused(STATUS_NOT_FOUND, "--fetch cifar10");
    write_file("cifar-10-binary.tar.gz", bytes, 10);
    check_refused(STATUS_UNSUPPORTED, "tar -xzf cifar-10-binary.tar.gz");
    free(bytes);
}

TEST_MAIN
