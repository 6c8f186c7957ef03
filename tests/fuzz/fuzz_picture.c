/* A picture file: refused with its name, or decoded. What is decoded is the same the second time, and
 * every crop that is read directly is that crop of the decoded picture. The first byte is the index of
 * the sample; checksums of a PNG are corrected, so that changes get past them. */
#include <string.h>

#include "tests/fuzz/target.h"
#include "tests/lib/made_picture.h"
#include "worker/data/picture/picture.h"

enum { SIZE = 24, IMAGE_BYTES = SIZE * SIZE * 3, PIXELS_MAX = 20000, FILE_BYTES_MAX = 1 << 16 };

static void add_file(fuzz_add *add, uint32_t index, const void *bytes, size_t byte_count)
{
    char input[FILE_BYTES_MAX];

    FUZZ_CHECK(byte_count < sizeof input);
    input[0] = (char)index;
    memcpy(input + 1, bytes, byte_count);
    add(input, byte_count + 1);
}

static void add_jpegs(fuzz_add *add)
{
    static const int samplings[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}};

    for (uint32_t i = 0; i < 120; i++) {
        struct made_picture kind = {.width = 1 + i * 11 % 70,
                                    .height = 1 + i * 7 % 50,
                                    .components = i % 8 == 6   ? 4
                                                  : i % 8 == 7 ? 1
                                                               : 3,
                                    .h = samplings[i % 5][0],
                                    .v = samplings[i % 5][1],
                                    .restart = (int)(i % 3),
                                    .is_staged = i % 4 == 3,
                                    .quality = 20 + (int)(i % 75)};
        size_t byte_count;
        uint8_t *bytes = made_jpeg(&kind, &byte_count);

        add_file(add, i, bytes, byte_count);
        free(bytes);
    }
}

static void add_pngs(fuzz_add *add)
{
    static const int kinds[][2] = {{0, 1}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16},
                                   {3, 2}, {3, 8}, {4, 8}, {4, 16}, {6, 8}, {6, 16}};

    for (uint32_t i = 0; i < 48; i++) {
        struct made_picture kind = {.width = 1 + i * 5 % 40,
                                    .height = 1 + i * 3 % 30,
                                    .colour = kinds[i % 12][0],
                                    .depth = kinds[i % 12][1],
                                    .is_staged = i / 12 % 2 == 1};
        size_t byte_count;
        uint8_t *bytes = made_png(&kind, &byte_count);

        add_file(add, i, bytes, byte_count);
        free(bytes);
    }
}

void fuzz_corpus(fuzz_add *add)
{
    uint8_t bmp[54 + 1024 + 64] = "BM";

    bmp[10] = 54;
    bmp[14] = 40;
    bmp[18] = 5;
    bmp[22] = 3;
    for (uint32_t i = 0; i < 120; i++) {
        bmp[28] = i % 3 == 0 ? 8 : i % 3 == 1 ? 24 : 32;
        bmp[11] = i % 3 == 0 ? 4 : 0; /* behind the palette */
        add_file(add, i, bmp, sizeof bmp);
        add_file(add, i, i % 2 == 0 ? "P6 2 2 255\n0123456789ab" : "P5 #x\n3 4 100\n0123456789ab",
                 23);
    }
    for (uint32_t i = 0; i < 3; i++) { /* more than there are broken inputs of messages */
        add_jpegs(add);
        add_pngs(add);
    }
}

static struct picture_reader *reader, *other;

static void begin(void)
{
    FUZZ_CHECK(picture_reader_new(&reader, NULL) == STATUS_OK);
    FUZZ_CHECK(picture_reader_new(&other, NULL) == STATUS_OK);
    picture_reader_limit(reader, PIXELS_MAX);
    picture_reader_limit(other, PIXELS_MAX);
}

static void check_error(enum status status, const struct err *err)
{
    FUZZ_CHECK(status == STATUS_BAD_INPUT || status == STATUS_TOO_BIG ||
               status == STATUS_UNSUPPORTED);
    FUZZ_CHECK(strstr(err->text, "a.jpg: ") == err->text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    static uint8_t direct[IMAGE_BYTES];
    static uint8_t cropped[IMAGE_BYTES];
    struct picture_rules rules;
    struct picture whole;
    struct err err = {.text = ""};
    enum status status;
    uint8_t *file;

    if (byte_count < 1)
        return 0;
    if (reader == NULL)
        begin();
    file = malloc(byte_count);
    FUZZ_CHECK(file != NULL);
    memcpy(file, data + 1, byte_count - 1);
    if (byte_count > 9 && memcmp(file, "\x89PNG\r\n\x1a\n", 8) == 0)
        made_png_mend(file, byte_count - 1);
    picture_rules_set(&rules, SIZE, data[0] % 2 == 0);
    status =
        picture_read(reader, file, byte_count - 1, "a.jpg", &rules, 1, 2, data[0], direct, &err);
    if (status != STATUS_OK)
        check_error(status, &err);
    if (picture_decode(other, file, byte_count - 1, "a.jpg", &whole, &err) == STATUS_OK) {
        FUZZ_CHECK(status == STATUS_OK);
        FUZZ_CHECK(whole.width > 0 && (uint64_t)whole.width * whole.height <= PIXELS_MAX);
        FUZZ_CHECK(picture_crop(other, &whole, &rules, 1, 2, data[0], cropped, &err) == STATUS_OK);
        FUZZ_CHECK(memcmp(direct, cropped, IMAGE_BYTES) == 0);
    } else {
        check_error(err.status, &err);
    }
    rules.dct_scaling = true;
    status =
        picture_read(reader, file, byte_count - 1, "a.jpg", &rules, 1, 2, data[0], direct, &err);
    if (status != STATUS_OK)
        check_error(status, &err);
    free(file);
    return 0;
}
