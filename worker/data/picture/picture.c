#include "worker/data/picture/picture.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "worker/data/picture/decoder.h"
#include "worker/data/picture/grow.h"
#include "worker/data/picture/resample.h"
#include "worker/data/picture/view.h"

static const struct picture_format *const formats[] = {&picture_jpeg, &picture_png,  &picture_pnm,
                                                       &picture_bmp,  &picture_tiff, &picture_webp};
enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

struct picture_reader {
    void *decoders[FORMAT_COUNT];
    struct resample resample;
    uint32_t pixels_max;
    uint8_t *pixels; /* of a whole picture */
    size_t pixels_allocated;
    uint8_t *next_row; /* position in pixels */
    size_t row_bytes;
    uint8_t *padded_row;
    size_t padded_allocated;
};

enum status picture_reader_new(struct picture_reader **out, struct err *err)
{
    struct picture_reader *reader = calloc(1, sizeof *reader);
    enum status status = STATUS_OK;

    *out = reader;
    if (reader == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to read pictures");
    reader->pixels_max = PICTURE_PIXELS_MAX;
    for (size_t i = 0; i < FORMAT_COUNT && status == STATUS_OK; i++)
        status = formats[i]->decoder_new(&reader->decoders[i], err);
    if (status != STATUS_OK)
        picture_reader_free(out);
    return status;
}

void picture_reader_free(struct picture_reader **reader)
{
    if (*reader == NULL)
        return;
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if ((*reader)->decoders[i] != NULL)
            formats[i]->decoder_free((*reader)->decoders[i]);
    resample_close(&(*reader)->resample);
    free((*reader)->pixels);
    free((*reader)->padded_row);
    free(*reader);
    *reader = NULL;
}

void picture_reader_limit(struct picture_reader *reader, uint32_t pixels_max)
{
    assert(pixels_max <= PICTURE_PIXELS_MAX);
    reader->pixels_max = pixels_max;
}

/* Signatures of common formats that are not supported here. */
static const char *foreign_name(const struct picture_file *file)
{
    static const struct {
        const char *name;
        size_t at, byte_count;
        const char *bytes;
    } rows[] = {{"GIF", 0, 4, "GIF8"},
                {"AVIF or HEIF", 4, 4, "ftyp"},
                {"JPEG 2000", 4, 4, "jP  "},
                {"JPEG XL", 0, 2, "\xff\x0a"},
                {"PostScript or PDF", 0, 2, "%P"},
                {"gzip", 0, 2, "\x1f\x8b"},
                {"zip", 0, 4, "PK\3\4"},
                {"HTML or XML", 0, 1, "<"}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (file->byte_count >= rows[i].at + rows[i].byte_count &&
            memcmp(file->bytes + rows[i].at, rows[i].bytes, rows[i].byte_count) == 0)
            return rows[i].name;
    return NULL;
}

static enum status find_format(const struct picture_file *file, size_t *format, struct err *err)
{
    const char *foreign = foreign_name(file);

    if (file->byte_count == 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: the file is empty", file->name);
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        if (formats[i]->is_this(file)) {
            *format = i;
            return STATUS_OK;
        }
    }
    if (foreign != NULL)
        return err_set(
            err, STATUS_UNSUPPORTED, 0,
            "%s: its content is %s, not JPEG, PNG, PNM, BMP, TIFF or WebP: convert or remove it",
            file->name, foreign);
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "%s: its content is no picture (JPEG, PNG, PNM, BMP, TIFF, WebP)", file->name);
}

static enum status open_picture(struct picture_reader *reader, const struct picture_file *file,
                                size_t *format, uint32_t *width, uint32_t *height, struct err *err)
{
    enum status status = find_format(file, format, err);

    if (status == STATUS_OK)
        status = formats[*format]->open(reader->decoders[*format], file, width, height, err);
    if (status != STATUS_OK)
        return status;
    if (*width == 0 || *height == 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: a picture of %u x %u pixels", file->name,
                       *width, *height);
    if ((uint64_t)*width * *height > reader->pixels_max)
        return err_set(
            err, STATUS_TOO_BIG, 0,
            "%s: %u x %u pixels, and at most %u are decoded: make it smaller or remove it",
            file->name, *width, *height, reader->pixels_max);
    return STATUS_OK;
}

/* Sets up the resampling of `view`. The picture is `by` times smaller than the one for which `view`
 * was chosen. Without reduction only the box is the input, as torchvision crops before it
 * resizes. */
static enum status begin_view(struct picture_reader *reader, const struct view *view,
                              const struct picture_rules *rules, uint32_t by, uint32_t width,
                              uint32_t height, uint8_t *image, struct err *err)
{
    struct resample_want x = {.in_count = view->width,
                              .end = view->width,
                              .out_count = view->resized_width,
                              .first = view->left,
                              .count = rules->size,
                              .is_flipped = view->is_flipped};
    struct resample_want y = {.in_count = view->height,
                              .end = view->height,
                              .out_count = view->resized_height,
                              .first = view->top,
                              .count = rules->size};

    if (by > 1) {
        x.in_count = width;
        x.begin = (double)view->x / by;
        x.end = (double)(view->x + view->width) / by;
        y.in_count = height;
        y.begin = (double)view->y / by;
        y.end = (double)(view->y + view->height) / by;
    }
    return resample_begin(&reader->resample, &x, &y, image, err);
}

/* The rows and columns of the picture that the resampling reads. */
static struct picture_box needed_box(const struct resample *resample, const struct view *view,
                                     uint32_t by)
{
    const struct resample_axis *x = &resample->x;
    const struct resample_axis *y = &resample->y;

    return (struct picture_box){.x = x->in_begin + (by > 1 ? 0 : view->x),
                                .y = y->in_begin + (by > 1 ? 0 : view->y),
                                .width = x->in_end - x->in_begin,
                                .height = y->in_end - y->in_begin};
}

/* The factor by which a picture may be reduced while it is decoded, so that every output still has
 * at least one pixel. */
static uint32_t reduction(const struct view *view)
{
    for (uint32_t by = 8; by > 1; by /= 2)
        if (view->width >= by * view->resized_width && view->height >= by * view->resized_height)
            return by;
    return 1;
}

static void take_resampled(void *context, const uint8_t *row)
{
    struct picture_reader *reader = context;

    resample_row(&reader->resample, row);
}

enum status picture_read(struct picture_reader *reader, const void *bytes, size_t byte_count,
                         const char *name, const struct picture_rules *rules, uint64_t seed,
                         uint64_t epoch, uint64_t index, uint8_t *image, struct err *err)
{
    struct picture_file file = {.bytes = bytes, .byte_count = byte_count, .name = name};
    struct picture_box box;
    struct view view;
    uint32_t width;
    uint32_t height;
    uint32_t by = 1;
    size_t format;
    enum status status;

    status = open_picture(reader, &file, &format, &width, &height, err);
    if (status != STATUS_OK)
        return status;
    view = view_of(rules, width, height, seed, epoch, index);
    if (rules->dct_scaling && formats[format]->reduce != NULL)
        by = reduction(&view);
    if (by > 1)
        status = formats[format]->reduce(reader->decoders[format], by, &width, &height, err);
    if (status == STATUS_OK)
        status = begin_view(reader, &view, rules, by, width, height, image, err);
    if (status != STATUS_OK)
        return status;
    box = needed_box(&reader->resample, &view, by);
    status = formats[format]->rows(reader->decoders[format], &box, take_resampled, reader, err);
    assert(status != STATUS_OK || resample_is_done(&reader->resample));
    return status;
}

static void take_whole(void *context, const uint8_t *row)
{
    struct picture_reader *reader = context;

    memcpy(reader->next_row, row, reader->row_bytes);
    reader->next_row += reader->row_bytes;
}

enum status picture_decode(struct picture_reader *reader, const void *bytes, size_t byte_count,
                           const char *name, struct picture *picture, struct err *err)
{
    struct picture_file file = {.bytes = bytes, .byte_count = byte_count, .name = name};
    struct picture_box box = {0};
    size_t format;
    enum status status;

    status = open_picture(reader, &file, &format, &box.width, &box.height, err);
    if (status != STATUS_OK)
        return status;
    reader->row_bytes = (size_t)box.width * 3;
    if (grow(&reader->pixels, &reader->pixels_allocated, reader->row_bytes * box.height) !=
        STATUS_OK)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for %u x %u pixels", name, box.width,
                       box.height);
    reader->next_row = reader->pixels;
    status = formats[format]->rows(reader->decoders[format], &box, take_whole, reader, err);
    *picture = (struct picture){box.width, box.height, reader->pixels};
    return status;
}

/* Gives the rows of `box` to the resampling, each followed by the readable bytes that it needs. */
static enum status give_rows(struct picture_reader *reader, const struct picture *picture,
                             const struct picture_box *box, struct err *err)
{
    size_t row_bytes = (size_t)box->width * 3;

    if (grow(&reader->padded_row, &reader->padded_allocated, row_bytes + RESAMPLE_ROW_PAD) !=
        STATUS_OK)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a row of %u pixels", box->width);
    for (uint32_t y = box->y; y < box->y + box->height; y++) {
        memcpy(reader->padded_row, picture->pixels + ((size_t)y * picture->width + box->x) * 3,
               row_bytes);
        resample_row(&reader->resample, reader->padded_row);
    }
    assert(resample_is_done(&reader->resample));
    return STATUS_OK;
}

enum status picture_crop(struct picture_reader *reader, const struct picture *picture,
                         const struct picture_rules *rules, uint64_t seed, uint64_t epoch,
                         uint64_t index, uint8_t *image, struct err *err)
{
    struct view view = view_of(rules, picture->width, picture->height, seed, epoch, index);
    struct picture_box box;
    enum status status;

    status = begin_view(reader, &view, rules, 1, picture->width, picture->height, image, err);
    if (status != STATUS_OK)
        return status;
    box = needed_box(&reader->resample, &view, 1);
    return give_rows(reader, picture, &box, err);
}

enum status picture_resize(struct picture_reader *reader, const struct picture *picture,
                           uint32_t width, uint32_t height, uint8_t *out, struct err *err)
{
    struct picture_box box = {0, 0, picture->width, picture->height};
    struct resample_want x = {
        .in_count = box.width, .end = box.width, .out_count = width, .count = width};
    struct resample_want y = {
        .in_count = box.height, .end = box.height, .out_count = height, .count = height};
    enum status status;

    status = resample_begin(&reader->resample, &x, &y, out, err);
    if (status != STATUS_OK)
        return status;
    return give_rows(reader, picture, &box, err);
}
