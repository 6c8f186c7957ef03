/* The IDX reader: real MNIST, and inconsistent files. */
#include "worker/data/idx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <zlib.h>

#include "tests/lib/sources.h"
#include "tests/lib/test.h"

enum { IMAGES_BYTES = 16 + 3 * 6, LABELS_BYTES = 8 + 3 };

/* Three images of 2 x 3 pixels and their labels, good. */
static const uint8_t good_images[IMAGES_BYTES] = {0, 0, 8,  3,  0,  0,  0,  3,  0,  0,  0, 2,
                                                  0, 0, 0,  3,  0,  1,  2,  3,  4,  5,  6, 7,
                                                  8, 9, 10, 11, 12, 13, 14, 15, 16, 255};
static const uint8_t good_labels[LABELS_BYTES] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9};

static void write_file(const char *name, const void *bytes, size_t byte_count, bool packed)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/%s%s", test_dir(), name, packed ? ".gz" : "");
    if (packed) {
        gzFile gz = gzopen(path, "wb");
        CHECK(gz != NULL);
        CHECK_EQ(gzwrite(gz, bytes, (unsigned)byte_count), byte_count);
        CHECK_EQ(gzclose(gz), Z_OK);
        return;
    }
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK_EQ(fwrite(bytes, 1, byte_count, file), byte_count);
    CHECK_EQ(fclose(file), 0);
}

static struct idx_unused unused; /* of the last set */

static void write_good(bool packed)
{
    write_file("train-images-idx3-ubyte", good_images, IMAGES_BYTES, packed);
    write_file("train-labels-idx1-ubyte", good_labels, LABELS_BYTES, packed);
}

static void check_good(void)
{
    struct source *set;
    struct err err;
    uint8_t images[12];

    CHECK_EQ(idx_read(&set, test_dir(), "train", &unused, &err), STATUS_OK);
    CHECK_EQ(set->count, 3);
    CHECK_EQ(set->shape.height, 2);
    CHECK_EQ(set->shape.width, 3);
    CHECK_EQ(sources_read(set, 0, 2, images), 9);
    CHECK_EQ(sources_read(set, 0, 0, images + 6), 7);
    CHECK_EQ(images[0], 12);
    CHECK_EQ(images[5], 255);
    CHECK_EQ(images[6], 0);
    source_free(&set);
}

TEST(plain_files)
{
    write_good(false);
    check_good();
}

TEST(packed_files)
{
    write_good(true);
    check_good();
}

/* Expects a refusal whose text has both words. */
static void check_refused(enum status expected, const char *word, const char *other_word)
{
    struct source *set;
    struct err err = {0};
    enum status status = idx_read(&set, test_dir(), "train", &unused, &err);

    if (status == STATUS_OK)
        FAIL("a bad file was taken (expected: %s)", word);
    CHECK_EQ(status, expected);
    if (strstr(err.text, word) == NULL || strstr(err.text, other_word) == NULL)
        FAIL("expected \"%s\" and \"%s\" in: %s", word, other_word, err.text);
}

TEST(headers_that_lie)
{
    static const struct {
        size_t at;
        uint8_t bytes[4];
        enum status status;
        const char *word;
    } cases[] = {
        {0, {0, 0, 8, 1}, STATUS_BAD_INPUT, "0x00000803"},       /* labels for images */
        {0, {0x50, 0x4b, 3, 4}, STATUS_BAD_INPUT, "0x00000803"}, /* a zip */
        {0, {0, 0, 13, 3}, STATUS_BAD_INPUT, "0x00000d03"},      /* floats */
        {4, {0, 0, 0, 4}, STATUS_BAD_INPUT, "expected 40 bytes"},
        {4, {0, 0, 0, 2}, STATUS_BAD_INPUT, "expected 28 bytes"},
        {4, {0, 0, 0, 0}, STATUS_BAD_INPUT, "the header says 0"},
        {4, {255, 255, 255, 255}, STATUS_BAD_INPUT, "4294967295"},
        {8, {0, 0, 0, 0}, STATUS_BAD_INPUT, "side of 1"},
        {8, {255, 255, 255, 255}, STATUS_BAD_INPUT, "4294967295"},
        {12, {0, 0, 0x10, 0}, STATUS_BAD_INPUT, "bytes as the header says"},
    };
    uint8_t images[IMAGES_BYTES];

    write_good(false);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(images, good_images, sizeof images);
        memcpy(images + cases[i].at, cases[i].bytes, 4);
        write_file("train-images-idx3-ubyte", images, sizeof images, false);
        check_refused(cases[i].status, cases[i].word, "train-images-idx3-ubyte");
    }
}

TEST(every_truncation_is_named)
{
    for (int packed = 0; packed < 2; packed++) {
        write_good(packed);
        for (size_t n = 0; n < IMAGES_BYTES; n++) {
            write_file("train-images-idx3-ubyte", good_images, n, packed);
            check_refused(STATUS_BAD_INPUT, "expected", "train-images-idx3-ubyte");
        }
        write_good(packed);
        for (size_t n = 0; n < LABELS_BYTES; n++) {
            write_file("train-labels-idx1-ubyte", good_labels, n, packed);
            check_refused(STATUS_BAD_INPUT, "expected", "train-labels-idx1-ubyte");
        }
        char path[512];
        (void)snprintf(path, sizeof path, "%s/train-labels-idx1-ubyte", test_dir());
        (void)remove(path);
        (void)snprintf(path, sizeof path, "%s/train-images-idx3-ubyte", test_dir());
        (void)remove(path);
    }
}

TEST(too_long_is_named)
{
    uint8_t images[IMAGES_BYTES + 1] = {0};

    memcpy(images, good_images, IMAGES_BYTES);
    write_good(true);
    write_file("train-images-idx3-ubyte", images, sizeof images, true);
    check_refused(STATUS_BAD_INPUT, "more bytes", ".gz");
    write_file("train-images-idx3-ubyte", images, sizeof images, false);
    check_refused(STATUS_BAD_INPUT, "expected 34 bytes", "found 35");
}

/* Flips each byte of the .gz in turn: never a crash, and what is taken has the good pixels (gzip's
 * header has free bytes). */
TEST(every_damaged_byte_of_a_gz)
{
    uint8_t packed[256];
    char path[512];
    size_t n;
    FILE *file;

    write_good(true);
    (void)snprintf(path, sizeof path, "%s/train-images-idx3-ubyte.gz", test_dir());
    file = fopen(path, "rb");
    CHECK(file != NULL);
    n = fread(packed, 1, sizeof packed, file);
    (void)fclose(file);
    CHECK(n > 20 && n < sizeof packed);
    for (size_t i = 0; i < n; i++) {
        struct source *set = NULL;
        packed[i] ^= 0x5a;
        write_file("train-images-idx3-ubyte.gz", packed, n, false);
        if (idx_read(&set, test_dir(), "train", &unused, NULL) == STATUS_OK) {
            CHECK_EQ(set->count, 3);
            source_free(&set);
            check_good();
        }
        packed[i] ^= 0x5a;
        for (size_t cut = 0; i == 0 && cut < n;
             cut++) { /* and every truncation of the packed file */
            write_file("train-images-idx3-ubyte.gz", packed, cut, false);
            check_refused(STATUS_BAD_INPUT,
                          cut == 0   ? "expected"
                          : cut == 1 ? "header"
                                     : "cut off",
                          "train-images-idx3-ubyte.gz");
        }
    }
}

/* More than zlib decompresses at once, so that the values are there before the end is looked at. */
TEST(the_end_of_a_large_gz_is_checked)
{
    enum { COUNT = 4000, HEAD = 16, BYTES = HEAD + COUNT * 100 };
    static uint8_t images[BYTES], labels[8 + COUNT], packed[2 * BYTES];
    const uint8_t head[HEAD] = {0, 0, 8, 3,  0, 0, COUNT >> 8, COUNT & 255,
                                0, 0, 0, 10, 0, 0, 0,          10};
    const uint8_t labels_head[8] = {0, 0, 8, 1, 0, 0, COUNT >> 8, COUNT & 255};
    const char name[] = "train-images-idx3-ubyte.gz";
    char path[512];
    uint32_t random = 1;
    struct source *set;
    size_t n;
    FILE *file;

    for (size_t i = 0; i < BYTES; i++) /* cannot be compressed */
        images[i] = (uint8_t)((random = random * 1664525 + 1013904223) >> 24);
    memcpy(images, head, HEAD);
    memcpy(labels, labels_head, sizeof labels_head);
    write_file("train-images-idx3-ubyte", images, BYTES, true);
    write_file("train-labels-idx1-ubyte", labels, sizeof labels, true);
    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    file = fopen(path, "rb");
    CHECK(file != NULL);
    n = fread(packed, 1, sizeof packed, file);
    (void)fclose(file);
    for (size_t cut = 1; cut <= 12; cut++) {
        write_file(name, packed, n - cut, false);
        check_refused(STATUS_BAD_INPUT, "cut off", name);
    }
    for (size_t i = 1; i <= 8; i++) { /* the CRC and the length */
        packed[n - i] ^= 0x10;
        write_file(name, packed, n, false);
        check_refused(STATUS_BAD_INPUT, "damaged", name);
        packed[n - i] ^= 0x10;
    }
    memset(packed + n, 0x55, 4);
    write_file(name, packed, n + 4, false);
    check_refused(STATUS_BAD_INPUT, "other bytes follow", name);
    memset(packed + n, 0, 4);
    write_file(name, packed, n + 4, false);
    CHECK_EQ(idx_read(&set, test_dir(), "train", &unused, NULL), STATUS_OK);
    CHECK_EQ(set->count, COUNT);
    source_free(&set);
}

TEST(labels_say_how_many_classes_there_are)
{
    uint8_t labels[LABELS_BYTES];
    struct source *set;

    write_good(false); /* three of 10 labels are used */
    check_good();
    CHECK_EQ(unused.count, 7);
    CHECK_EQ(unused.first, 1);
    memcpy(labels, good_labels, sizeof labels);
    labels[LABELS_BYTES - 1] = 61;
    write_file("train-labels-idx1-ubyte", labels, sizeof labels, false);
    CHECK_EQ(idx_read(&set, test_dir(), "train", &unused, NULL), STATUS_OK);
    CHECK_EQ(set->shape.classes, 62);
    source_free(&set);
    memcpy(labels + LABELS_BYTES - 3, (const uint8_t[]){0, 1, 0}, 3);
    write_file("train-labels-idx1-ubyte", labels, sizeof labels, false);
    CHECK_EQ(idx_read(&set, test_dir(), "train", &unused, NULL), STATUS_OK);
    CHECK_EQ(set->shape.classes, 2);
    CHECK_EQ(unused.count, 0);
    source_free(&set);
    labels[LABELS_BYTES - 1] = 2; /* the other set has one more */
    write_file("t10k-labels-idx1-ubyte", labels, sizeof labels, false);
    CHECK_EQ(idx_read(&set, test_dir(), "train", &unused, NULL), STATUS_OK);
    CHECK_EQ(set->shape.classes, 3);
    CHECK_EQ(unused.count, 1);
    CHECK_EQ(unused.first, 2);
    source_free(&set);
    labels[7] = 2;
    write_file("train-labels-idx1-ubyte", labels, sizeof labels - 1, false);
    check_refused(STATUS_BAD_INPUT, "expected 3 labels", "found 2");
}

TEST(missing_and_odd_files)
{
    char path[512];

    check_refused(STATUS_NOT_FOUND, "train-images-idx3-ubyte.gz", "built-in digits");
    (void)snprintf(path, sizeof path, "%s/train-images-idx3-ubyte", test_dir());
    CHECK_EQ(mkdir(path, 0700), 0);
    check_refused(STATUS_BAD_INPUT, "not a regular file", "train-images-idx3-ubyte");
    CHECK_EQ(remove(path), 0);
    CHECK_EQ(mkfifo(path, 0600), 0); /* must not wait for a writer */
    check_refused(STATUS_BAD_INPUT, "not a regular file", "train-images-idx3-ubyte");
}

/* A header that promises 24 GB over a file of a few bytes must cost nothing. */
TEST(large_promises_cost_nothing)
{
    static const uint8_t header[17] = {0, 0, 8, 3, 0, 0, 0x80, 0, 0, 0, 4, 0, 0, 0, 4, 0, 1};

    write_good(true);
    write_file("train-images-idx3-ubyte", header, sizeof header, true);
    check_refused(STATUS_BAD_INPUT, "bytes as the header says", "compressed");
}

TEST(real_mnist)
{
    struct source *set;
    struct err err = {0};
    const char *dir = test_shared("data/mnist");
    static uint8_t image[784];

    if (dir == NULL)
        SKIP("MNIST (../shared/data/mnist) is not here");
    if (idx_read(&set, dir, "t10k", &unused, &err) != STATUS_OK)
        FAIL("%s", err.text);
    CHECK_EQ(set->count, 10000);
    CHECK_EQ(set->shape.width, 28);
    CHECK_EQ(sources_read(set, 0, 0, image), 7); /* the first test image is a 7 */
    source_free(&set);
}

TEST_MAIN
