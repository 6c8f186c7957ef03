/* The decoders: a box of a picture is that part of the whole picture, for every kind of file. */
#include "worker/data/picture/decoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "common/draw.h"
#include "tests/lib/made_picture.h"
#include "tests/lib/test.h"

struct taken {
    uint8_t *next;
    size_t row_bytes;
    uint32_t count;
};

static void take(void *context, const uint8_t *row)
{
    struct taken *taken = context;

    memcpy(taken->next, row, taken->row_bytes);
    taken->next += taken->row_bytes;
    taken->count++;
}

/* The pixels of `box`, or of the whole picture where it is NULL. */
static uint8_t *read_box(const struct picture_format *format, void *decoder,
                         const struct picture_file *file, uint32_t by, struct picture_box *box)
{
    struct picture_box whole = {0};
    struct err err = {.text = ""};
    struct taken taken = {0};
    uint8_t *pixels;
    enum status status;

    status = format->open(decoder, file, &whole.width, &whole.height, &err);
    if (status == STATUS_OK && by > 1)
        status = format->reduce(decoder, by, &whole.width, &whole.height, &err);
    if (status != STATUS_OK)
        FAIL("open: %s", err.text);
    if (box->width == 0)
        *box = whole;
    pixels = malloc((size_t)box->width * box->height * 3);
    CHECK(pixels != NULL);
    taken = (struct taken){.next = pixels, .row_bytes = (size_t)box->width * 3};
    status = format->rows(decoder, box, take, &taken, &err);
    if (status != STATUS_OK)
        FAIL("rows: %s", err.text);
    CHECK_EQ(taken.count, box->height);
    return pixels;
}

static void check_box(const struct picture_format *format, void *decoder,
                      const struct picture_file *file, uint32_t by, const uint8_t *whole,
                      uint32_t width, struct picture_box box)
{
    uint8_t *part = read_box(format, decoder, file, by, &box);

    for (uint32_t y = 0; y < box.height; y++)
        if (memcmp(part + (size_t)y * box.width * 3,
                   whole + ((size_t)(box.y + y) * width + box.x) * 3, (size_t)box.width * 3) != 0)
            FAIL("%s, reduced by %u: row %u of the box %u x %u at %u, %u differs", file->name, by,
                 y, box.width, box.height, box.x, box.y);
    free(part);
}

/* Boxes at every corner, single pixels, and drawn ones. */
static void check_boxes(const struct picture_format *format, void *decoder,
                        const struct picture_file *file, uint32_t by, uint64_t seed)
{
    struct picture_box whole = {0};
    uint8_t *pixels = read_box(format, decoder, file, by, &whole);
    struct draw draw = draw_begin(seed, by);

    for (uint32_t i = 0; i < 24; i++) {
        struct picture_box box;

        box.width = 1 + draw_below(&draw, i % 3 == 0 ? 3 : whole.width);
        box.height = 1 + draw_below(&draw, i % 3 == 1 ? 3 : whole.height);
        box.width = box.width > whole.width ? whole.width : box.width;
        box.height = box.height > whole.height ? whole.height : box.height;
        box.x = i % 4 == 0   ? 0
                : i % 4 == 1 ? whole.width - box.width
                             : draw_below(&draw, whole.width - box.width + 1);
        box.y = i % 8 < 2   ? 0
                : i % 8 < 4 ? whole.height - box.height
                            : draw_below(&draw, whole.height - box.height + 1);
        check_box(format, decoder, file, by, pixels, whole.width, box);
    }
    free(pixels);
}

static void on_message(j_common_ptr common)
{
    (void)common; /* warnings of damaged data */
}

/* All of the picture is what libjpeg alone gives. */
static void check_whole(void *decoder, const struct picture_file *file)
{
    struct picture_box whole = {0};
    uint8_t *pixels = read_box(&picture_jpeg, decoder, file, 1, &whole);
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    uint8_t *row = malloc((size_t)whole.width * 3);

    CHECK(row != NULL);
    cinfo.err = jpeg_std_error(&errors);
    errors.output_message = on_message;
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, file->bytes, file->byte_count);
    (void)jpeg_read_header(&cinfo, TRUE);
    cinfo.out_color_space = JCS_RGB;
    (void)jpeg_start_decompress(&cinfo);
    for (uint32_t y = 0; y < whole.height; y++) {
        (void)jpeg_read_scanlines(&cinfo, &row, 1);
        if (memcmp(row, pixels + (size_t)y * whole.width * 3, (size_t)whole.width * 3) != 0)
            FAIL("%s: row %u is not libjpeg's", file->name, y);
    }
    jpeg_abort_decompress(&cinfo);
    jpeg_destroy_decompress(&cinfo);
    free(row);
    free(pixels);
}

static void check_jpeg(const struct made_picture *kind)
{
    struct picture_file file;
    struct err err = {.text = ""};
    char name[128];
    void *decoder;
    uint8_t *bytes = made_jpeg(kind, &file.byte_count);

    (void)snprintf(name, sizeof name, "%d components, %dx%d, %s, restart %d, %ux%u",
                   kind->components, kind->h, kind->v, kind->is_staged ? "progressive" : "baseline",
                   kind->restart, kind->width, kind->height);
    file.bytes = bytes;
    file.name = name;
    CHECK(picture_jpeg.is_this(&file));
    CHECK_EQ(picture_jpeg.decoder_new(&decoder, &err), STATUS_OK);
    if (kind->components < 4)
        check_whole(decoder, &file);
    for (uint32_t by = 1; by <= 8; by *= 2)
        check_boxes(&picture_jpeg, decoder, &file, by, kind->width);
    picture_jpeg.decoder_free(decoder);
    free(bytes);
}

TEST(boxes_of_jpeg)
{
    static const uint32_t sizes[][2] = {{1, 1}, {16, 16}, {33, 47}, {131, 95}, {64, 211}};
    static const int samplings[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {4, 2}};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t s = 0; s < sizeof samplings / sizeof samplings[0]; s++)
            for (int components = 1; components <= 4; components++) {
                struct made_picture kind = {.width = sizes[i][0],
                                            .height = sizes[i][1],
                                            .components = components,
                                            .h = samplings[s][0],
                                            .v = samplings[s][1],
                                            .restart = (int)(i + s) % 3,
                                            .quality = 40 + 14 * (int)i,
                                            .is_staged = (i + s + (size_t)components) % 4 == 3};

                if (components != 2 &&
                    (components < 4 || kind.h * kind.v <= 4)) /* as libjpeg writes */
                    check_jpeg(&kind);
            }
}

/* Wherever coded data is damaged, what is shown is what libjpeg shows. */
TEST(damaged_jpeg)
{
    struct draw draw = draw_begin(8, 0);
    struct err err = {.text = ""};
    void *decoder;

    CHECK_EQ(picture_jpeg.decoder_new(&decoder, &err), STATUS_OK);
    for (uint32_t trial = 0; trial < 600; trial++) {
        struct made_picture kind = {.width = 60 + trial % 30,
                                    .height = 50,
                                    .components = trial % 4 == 0 ? 1 : 3,
                                    .h = 1 + (int)trial % 2,
                                    .v = 1 + (int)trial % 2,
                                    .restart = (int)(trial / 2 % 3) * 2};
        struct picture_file file = {.name = "damaged"};
        uint8_t *bytes = made_jpeg(&kind, &file.byte_count);
        const uint8_t *scan = memmem(bytes, file.byte_count, "\xff\xda", 2);
        size_t begin = (size_t)(scan - bytes) + 14;

        CHECK(scan != NULL);
        for (uint32_t i = 0; i <= trial % 3; i++)
            bytes[begin + draw_below(&draw, (uint32_t)(file.byte_count - begin - 2))] =
                (uint8_t)draw_below(&draw, 255); /* never the first byte of a marker */
        file.bytes = bytes;
        check_whole(decoder, &file);
        free(bytes);
    }
    picture_jpeg.decoder_free(decoder);
}

TEST(boxes_of_png)
{
    static const struct {
        int colour, depth;
    } kinds[] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16}, {3, 1},
                 {3, 2}, {3, 4}, {3, 8}, {4, 8}, {4, 16}, {6, 8}, {6, 16}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct made_picture kind = {
            .width = 61, .height = 45, .colour = kinds[i].colour, .depth = kinds[i].depth};
        struct picture_file file = {.name = "made.png"};
        struct picture_file staged_file = {.name = "interlaced.png"};
        struct picture_box whole = {0};
        struct picture_box staged = {0};
        struct err err = {.text = ""};
        void *decoder;
        uint8_t *bytes = made_png(&kind, &file.byte_count);
        uint8_t *staged_bytes;
        uint8_t *pixels;
        uint8_t *staged_pixels;

        kind.is_staged = true;
        staged_bytes = made_png(&kind, &staged_file.byte_count);
        file.bytes = bytes;
        staged_file.bytes = staged_bytes;
        CHECK_EQ(picture_png.decoder_new(&decoder, &err), STATUS_OK);
        check_boxes(&picture_png, decoder, &file, 1, i);
        check_boxes(&picture_png, decoder, &staged_file, 1, i);
        pixels = read_box(&picture_png, decoder, &file, 1, &whole);
        staged_pixels = read_box(&picture_png, decoder, &staged_file, 1, &staged);
        CHECK_BYTES(staged_pixels, pixels, (size_t)61 * 45 * 3);
        free(pixels);
        free(staged_pixels);
        picture_png.decoder_free(decoder);
        free(bytes);
        free(staged_bytes);
    }
}

TEST(boxes_of_plain_files)
{
    enum { WIDTH = 21, HEIGHT = 13 };
    uint8_t bytes[16 + WIDTH * HEIGHT * 3] = "P6 21 13 255\n";
    struct picture_file file = {bytes, 13 + WIDTH * HEIGHT * 3, "made.ppm"};
    struct picture_box whole = {0};
    struct err err = {.text = ""};
    void *decoder;
    uint8_t *pixels;

    for (size_t i = 13; i < file.byte_count; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 5);
    CHECK_EQ(picture_pnm.decoder_new(&decoder, &err), STATUS_OK);
    pixels = read_box(&picture_pnm, decoder, &file, 1, &whole);
    CHECK_BYTES(pixels, bytes + 13, (size_t)WIDTH * HEIGHT * 3);
    check_boxes(&picture_pnm, decoder, &file, 1, 1);
    free(pixels);
    picture_pnm.decoder_free(decoder);
}

TEST_MAIN
