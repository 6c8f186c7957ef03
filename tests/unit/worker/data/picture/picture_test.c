/* Pictures as a net is given them: which part is drawn, and what happens to bad files. */
#include "worker/data/picture/picture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/made_picture.h"
#include "tests/lib/test.h"
#include "worker/data/picture/view.h"

enum { SIZE = 32, IMAGE_BYTES = SIZE * SIZE * 3 };

static struct picture_reader *new_reader(void)
{
    struct picture_reader *reader;
    struct err err = {.text = ""};

    CHECK_EQ(picture_reader_new(&reader, &err), STATUS_OK);
    return reader;
}

static struct picture_rules rules_of(bool is_training)
{
    struct picture_rules rules;

    picture_rules_set(&rules, SIZE, is_training);
    return rules;
}

/* -- views ------------------------------------------------------------------------------------- */

static bool is_inside(const struct view *view, uint32_t width, uint32_t height)
{
    return view->width >= 1 && view->height >= 1 && view->width <= width &&
           view->height <= height && view->x <= width - view->width &&
           view->y <= height - view->height;
}

TEST(random_boxes_are_within_the_rules)
{
    struct picture_rules rules = rules_of(true);
    uint32_t flipped_count = 0;
    double area = 0;

    for (uint64_t i = 0; i < 4000; i++) {
        struct view view = view_of(&rules, 500, 375, 1, 2, i);
        double part = (double)view.width * view.height / (500.0 * 375.0);
        double ratio = (double)view.width / view.height;

        CHECK(is_inside(&view, 500, 375));
        CHECK(part > 0.078 && part <= 1);
        CHECK(ratio > 0.74 && ratio < 1.35);
        area += part;
        flipped_count += view.is_flipped;
    }
    CHECK_NEAR(area / 4000, 0.434,
               0.02); /* of torchvision: large areas do not fit with every ratio */
    CHECK_NEAR(flipped_count / 4000.0, 0.5, 0.03);
}

TEST(no_flips_and_only_flips)
{
    struct picture_rules rules = rules_of(true);

    for (uint64_t i = 0; i < 200; i++) {
        rules.flip = 0;
        CHECK(!view_of(&rules, 50, 40, 1, 0, i).is_flipped);
        rules.flip = 1;
        CHECK(view_of(&rules, 50, 40, 1, 0, i).is_flipped);
    }
}

TEST(narrow_pictures_fall_back_to_the_middle)
{
    static const struct {
        uint32_t width, height, box_width, box_height;
    } rows[] = {
        {1, 1, 1, 1}, {1, 1000, 1, 1}, {1000, 1, 1, 1}, {30, 4000, 30, 40}, {4000, 30, 40, 30}};
    struct picture_rules rules = rules_of(true);

    rules.scale_min = rules.scale_max = 1; /* no box of this area and ratio fits but a square's */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct view view = view_of(&rules, rows[i].width, rows[i].height, 3, 0, i);

        CHECK_EQ(view.width, rows[i].box_width);
        CHECK_EQ(view.height, rows[i].box_height);
        CHECK_EQ(view.x, (rows[i].width - view.width) / 2);
        CHECK_EQ(view.y, (rows[i].height - view.height) / 2);
    }
}

TEST(the_centre_is_rounded_as_python_rounds)
{
    struct picture_rules rules = rules_of(false);
    struct view view;

    rules.size = 224;
    rules.resize = 256;
    view = view_of(&rules, 500, 375, 0, 0, 0);
    CHECK_EQ(view.resized_width, 341); /* int(256 * 500 / 375) */
    CHECK_EQ(view.resized_height, 256);
    CHECK_EQ(view.left, 58); /* round(58.5) */
    CHECK_EQ(view.top, 16);
    view = view_of(&rules, 375, 503, 0, 0, 0);
    CHECK_EQ(view.resized_height, 343);
    CHECK_EQ(view.top, 60); /* round(59.5) */
}

/* -- draws ------------------------------------------------------------------------------------- */

TEST(a_sample_depends_on_seed_epoch_and_index_alone)
{
    struct made_picture kind = {.width = 150, .height = 110, .components = 3, .h = 2, .v = 2};
    struct picture_rules rules = rules_of(true);
    struct picture_reader *one = new_reader();
    struct picture_reader *other = new_reader();
    uint8_t images[4][IMAGE_BYTES];
    uint8_t again[IMAGE_BYTES];
    size_t byte_count;
    uint8_t *bytes = made_jpeg(&kind, &byte_count);

    for (uint64_t i = 0; i < 4; i++)
        CHECK_EQ(picture_read(one, bytes, byte_count, "a", &rules, i == 1 ? 6 : 5, i == 2, i == 3,
                              images[i], NULL),
                 STATUS_OK);
    for (uint32_t i = 1; i < 4; i++)
        CHECK(memcmp(images[0], images[i], IMAGE_BYTES) != 0);
    for (uint64_t i = 4; i-- > 0;) { /* another reader, another order, another name */
        CHECK_EQ(picture_read(other, bytes, byte_count, "b", &rules, i == 1 ? 6 : 5, i == 2, i == 3,
                              again, NULL),
                 STATUS_OK);
        CHECK_BYTES(again, images[i], IMAGE_BYTES);
    }
    free(bytes);
    picture_reader_free(&one);
    picture_reader_free(&other);
}

TEST(a_decoded_picture_is_cropped_to_the_same)
{
    struct picture_reader *reader = new_reader();
    uint8_t direct[IMAGE_BYTES];
    uint8_t cropped[IMAGE_BYTES];

    for (uint64_t i = 0; i < 40; i++) {
        struct made_picture kind = {.width = 40 + (uint32_t)i * 7,
                                    .height = 250 - (uint32_t)i * 6,
                                    .components = 3,
                                    .h = 2,
                                    .v = 1 + (int)i % 2};
        struct picture_rules rules = rules_of(i % 3 != 0);
        struct picture whole;
        size_t byte_count;
        uint8_t *bytes = made_jpeg(&kind, &byte_count);

        CHECK_EQ(picture_read(reader, bytes, byte_count, "a", &rules, 1, 2, i, direct, NULL),
                 STATUS_OK);
        CHECK_EQ(picture_decode(reader, bytes, byte_count, "a", &whole, NULL), STATUS_OK);
        CHECK_EQ(whole.width, kind.width);
        CHECK_EQ(whole.height, kind.height);
        CHECK_EQ(picture_crop(reader, &whole, &rules, 1, 2, i, cropped, NULL), STATUS_OK);
        CHECK_BYTES(cropped, direct, IMAGE_BYTES);
        free(bytes);
    }
    picture_reader_free(&reader);
}

/* Reduced decoding looks like the full one: the mean difference is small, though the picture is noisy. */
TEST(dct_scaling_is_close)
{
    struct made_picture kind = {.width = 700, .height = 640, .components = 3, .h = 2, .v = 2};
    struct picture_reader *reader = new_reader();
    struct picture_rules rules = rules_of(true);
    uint8_t full[IMAGE_BYTES];
    uint8_t reduced[IMAGE_BYTES];
    uint32_t different_count = 0;
    size_t byte_count;
    uint8_t *bytes = made_jpeg(&kind, &byte_count);

    for (uint64_t i = 0; i < 30; i++) {
        double sum = 0;

        rules.dct_scaling = false;
        CHECK_EQ(picture_read(reader, bytes, byte_count, "a", &rules, 1, 0, i, full, NULL),
                 STATUS_OK);
        rules.dct_scaling = true;
        CHECK_EQ(picture_read(reader, bytes, byte_count, "a", &rules, 1, 0, i, reduced, NULL),
                 STATUS_OK);
        for (size_t p = 0; p < IMAGE_BYTES; p++)
            sum += abs(full[p] - reduced[p]);
        different_count += sum > 0;
        if (!(sum / IMAGE_BYTES < 8))
            FAIL("sample %u: mean difference %g", (unsigned)i, sum / IMAGE_BYTES);
    }
    CHECK(different_count > 20);
    free(bytes);
    picture_reader_free(&reader);
}

/* -- bad files --------------------------------------------------------------------------------- */

/* Refused by both ways of reading, with `words` and the name; the reader goes on. */
static void check_refused(struct picture_reader *reader, const void *bytes, size_t byte_count,
                          enum status expected, const char *words)
{
    struct picture_rules rules = rules_of(true);
    struct picture whole;
    uint8_t image[IMAGE_BYTES];

    for (int i = 0; i < 2; i++) {
        struct err err = {.text = ""};
        enum status status =
            i == 0
                ? picture_read(reader, bytes, byte_count, "dir/x.jpg", &rules, 0, 0, 0, image, &err)
                : picture_decode(reader, bytes, byte_count, "dir/x.jpg", &whole, &err);

        if (status != expected || strstr(err.text, words) == NULL ||
            strstr(err.text, "dir/x.jpg: ") != err.text)
            FAIL("%s, not %s with '%s': '%s'", status_name(status), status_name(expected), words,
                 err.text);
    }
}

static void check_reads(struct picture_reader *reader)
{
    struct made_picture kind = {
        .width = 20, .height = 30, .components = 3, .h = 1, .v = 1, .depth = 8, .colour = 2};
    struct picture whole;
    size_t byte_count;
    uint8_t *bytes = made_jpeg(&kind, &byte_count);

    CHECK_EQ(picture_decode(reader, bytes, byte_count, "good", &whole, NULL), STATUS_OK);
    free(bytes);
    bytes = made_png(&kind, &byte_count);
    CHECK_EQ(picture_decode(reader, bytes, byte_count, "good", &whole, NULL), STATUS_OK);
    free(bytes);
}

/* Exactly sized copies, so that a sanitizer sees a read behind the end. */
static void check_cut(struct picture_reader *reader, const uint8_t *bytes, size_t byte_count)
{
    for (size_t n = 0; n < byte_count; n += 1 + n / 40) {
        uint8_t *part = malloc(n + (n == 0));

        CHECK(part != NULL);
        memcpy(part, bytes, n);
        check_refused(reader, part, n, STATUS_BAD_INPUT, n == 0 ? "empty" : "");
        free(part);
    }
    check_reads(reader);
}

TEST(cut_files_are_refused)
{
    struct made_picture kind = {
        .width = 90, .height = 70, .components = 3, .h = 2, .v = 2, .depth = 8, .colour = 6};
    struct picture_reader *reader = new_reader();
    size_t byte_count;
    uint8_t *bytes;

    for (int i = 0; i < 2; i++) {
        kind.is_staged = i == 1;
        bytes = made_jpeg(&kind, &byte_count);
        check_cut(reader, bytes, byte_count);
        free(bytes);
        bytes = made_png(&kind, &byte_count);
        check_cut(reader, bytes,
                  byte_count - 12); /* only the end chunk may be missing, as with Pillow */
        free(bytes);
    }
    picture_reader_free(&reader);
}

/* Width and height in a PNG's header. */
static void put_sides(uint8_t *png, uint32_t side)
{
    for (int i = 0; i < 8; i++)
        png[16 + i] = (uint8_t)(side >> (24 - i % 4 * 8));
}

TEST(bombs_are_refused_before_memory_is_taken)
{
    struct made_picture kind = {
        .width = 16, .height = 16, .components = 3, .h = 1, .v = 1, .depth = 8, .colour = 2};
    struct picture_reader *reader = new_reader();
    size_t byte_count;
    uint8_t *bytes = made_jpeg(&kind, &byte_count);
    uint8_t *frame = memmem(bytes, byte_count, "\xff\xc0", 2);
    uint8_t bmp[64] = "BM";

    CHECK(frame != NULL);
    frame[5] = frame[7] = 30000 >> 8;
    frame[6] = frame[8] = 30000 & 255;
    check_refused(reader, bytes, byte_count, STATUS_TOO_BIG, "30000 x 30000 pixels");
    frame[5] = frame[6] = 0; /* no height: it would be in a later marker */
    check_refused(reader, bytes, byte_count, STATUS_BAD_INPUT, "");
    free(bytes);
    bytes = made_png(&kind, &byte_count);
    put_sides(bytes, 30000);
    made_png_mend(bytes, byte_count);
    check_refused(reader, bytes, byte_count, STATUS_TOO_BIG, "30000 x 30000 pixels");
    put_sides(bytes, INT32_MAX);
    made_png_mend(bytes, byte_count);
    check_refused(reader, bytes, byte_count, STATUS_BAD_INPUT, "PNG");
    free(bytes);
    check_refused(reader, "P6 30000 30000 255\n", 19, STATUS_BAD_INPUT, "cut off");
    check_refused(reader, "P6 999999999 999999999 255\n1", 28, STATUS_BAD_INPUT, "cut off");
    bmp[14] = 40;
    bmp[28] = 24;
    memset(bmp + 18, 0x7f, 8);
    check_refused(reader, bmp, sizeof bmp, STATUS_BAD_INPUT, "BMP");
    check_reads(reader);
    picture_reader_free(&reader);
}

TEST(the_limit_of_pixels_is_exact)
{
    struct made_picture kind = {.width = 40, .height = 50, .components = 1, .h = 1, .v = 1};
    struct picture_reader *reader = new_reader();
    struct picture whole;
    size_t byte_count;
    uint8_t *bytes = made_jpeg(&kind, &byte_count);

    picture_reader_limit(reader, 2000);
    CHECK_EQ(picture_decode(reader, bytes, byte_count, "a", &whole, NULL), STATUS_OK);
    picture_reader_limit(reader, 1999);
    check_refused(reader, bytes, byte_count, STATUS_TOO_BIG, "at most 1999");
    free(bytes);
    picture_reader_free(&reader);
}

/* A progressive file may have any number of scans, each a pass over the whole picture. */
TEST(too_many_scans_are_refused)
{
    struct made_picture kind = {
        .width = 16, .height = 16, .components = 3, .h = 1, .v = 1, .is_staged = true};
    struct picture_reader *reader = new_reader();
    size_t byte_count;
    uint8_t *bytes = made_jpeg(&kind, &byte_count);
    uint8_t *scan = memmem(bytes, byte_count, "\xff\xda", 2);
    uint8_t *end;
    uint8_t *many;
    size_t scan_bytes;
    size_t head_bytes;

    CHECK(scan != NULL);
    end = memmem(scan + 2, byte_count - (size_t)(scan + 2 - bytes), "\xff\xc4", 2);
    CHECK(end != NULL);
    scan_bytes = (size_t)(end - scan);
    head_bytes = (size_t)(scan - bytes);
    many = malloc(head_bytes + 600 * scan_bytes + 2);
    CHECK(many != NULL);
    memcpy(many, bytes, head_bytes);
    for (size_t i = 0; i < 600; i++)
        memcpy(many + head_bytes + i * scan_bytes, scan, scan_bytes);
    many[head_bytes + 600 * scan_bytes] = 0xff;
    many[head_bytes + 600 * scan_bytes + 1] = 0xd9;
    check_refused(reader, many, head_bytes + 600 * scan_bytes + 2, STATUS_TOO_BIG,
                  "more than 500 scans");
    check_reads(reader);
    free(many);
    free(bytes);
    picture_reader_free(&reader);
}

TEST(other_formats_are_named)
{
    static const struct {
        const char *bytes, *words;
        enum status status;
    } rows[] = {{"GIF89a, and more", "GIF", STATUS_UNSUPPORTED},
                {"RIFF....WEBPVP8 ", "a damaged WebP", STATUS_BAD_INPUT},
                {"II+..and more", "no picture", STATUS_BAD_INPUT},
                {"....ftypavif", "AVIF", STATUS_UNSUPPORTED},
                {"P3 1 1 255 1 2 3", "P3", STATUS_UNSUPPORTED},
                {"<html>not found</html>", "HTML", STATUS_UNSUPPORTED},
                {"just some text", "no picture", STATUS_BAD_INPUT},
                {"P6 2 2\n", "header", STATUS_BAD_INPUT},
                {"P6 2 2 70000\n", "header", STATUS_BAD_INPUT},
                {"P6 2 2 65535\n", "65535", STATUS_UNSUPPORTED},
                {"P5 0 5 255\n", "0 x 5", STATUS_BAD_INPUT},
                {"BM", "BMP", STATUS_BAD_INPUT}};
    struct picture_reader *reader = new_reader();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_refused(reader, rows[i].bytes, strlen(rows[i].bytes), rows[i].status, rows[i].words);
    picture_reader_free(&reader);
}

TEST_MAIN
