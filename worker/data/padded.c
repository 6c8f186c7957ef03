/* Padded random crops. See padded.h. */
#include "worker/data/padded.h"

#include <stdlib.h>
#include <string.h>

#include "common/draw.h"

struct padded {
    struct source source;
    struct source *inner;
    uint32_t padding;
    uint64_t seed;
};

struct reader {
    void *inner;
    struct source *source;
    uint8_t image[];
};

static void reader_free(void *user)
{
    struct reader *reader = user;

    source_reader_free(reader->source, &reader->inner);
    free(reader);
}

static enum status reader_new(struct source *source, void **out, struct err *err)
{
    struct source *inner = ((struct padded *)source)->inner;
    struct reader *reader = calloc(1, sizeof *reader + source_image_bytes(inner));
    enum status status;

    if (reader == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to read images");
    reader->source = inner;
    status = source_reader_new(inner, &reader->inner, err);
    if (status != STATUS_OK) {
        free(reader);
        return status;
    }
    *out = reader;
    return STATUS_OK;
}

static void copy_row(const uint8_t *from, uint8_t *to, uint32_t width, uint32_t channels,
                     bool mirrors)
{
    if (!mirrors) {
        memcpy(to, from, (size_t)width * channels);
        return;
    }
    for (uint32_t x = 0; x < width; x++)
        memcpy(to + (size_t)(width - 1 - x) * channels, from + (size_t)x * channels, channels);
}

/* Row `y` of the crop is row `y + top` of the padded image. */
static void crop(const struct padded *padded, const uint8_t *from, uint32_t top, uint32_t left,
                 bool mirrors, uint8_t *to)
{
    const struct dataset_shape *shape = &padded->source.shape;
    const uint32_t pad = padded->padding, channels = shape->channels;
    const size_t row_bytes = (size_t)shape->width * channels;
    /* Columns of the image that the crop has: from `first`, to column `at` of the crop. */
    const uint32_t first = left > pad ? left - pad : 0, at = left < pad ? pad - left : 0;
    const uint32_t gone = first > at ? first : at;
    const uint32_t width = gone < shape->width ? shape->width - gone : 0;

    memset(to, 0, row_bytes * shape->height);
    for (uint32_t y = 0; y < shape->height; y++) {
        const int64_t row = (int64_t)y + top - pad;
        const uint32_t column = mirrors ? shape->width - at - width : at;

        if (row < 0 || row >= (int64_t)shape->height)
            continue;
        copy_row(from + (size_t)row * row_bytes + (size_t)first * channels,
                 to + y * row_bytes + (size_t)column * channels, width, channels, mirrors);
    }
}

static enum status padded_read(struct source *source, void *user, uint64_t epoch, int64_t index,
                               uint8_t *image, int64_t *label, struct err *err)
{
    const struct padded *padded = (const struct padded *)source;
    struct reader *reader = user;
    struct draw draw = draw_begin(padded->seed, epoch);
    uint32_t top, left;
    bool mirrors;
    enum status status = padded->inner->ops->read(padded->inner, reader->inner, epoch, index,
                                                  reader->image, label, err);

    if (status != STATUS_OK)
        return status;
    draw = draw_begin(draw_u64(&draw), (uint64_t)index);
    top = draw_below(&draw, 2 * padded->padding + 1);
    left = draw_below(&draw, 2 * padded->padding + 1);
    mirrors = draw_between(&draw, 0.0F, 1.0F) < 0.5F;
    crop(padded, reader->image, top, left, mirrors, image);
    return STATUS_OK;
}

static void padded_close(struct source *source)
{
    struct padded *padded = (struct padded *)source;

    source_free(&padded->inner);
    free(padded);
}

static const struct source_ops padded_ops = {
    .reader_new = reader_new,
    .reader_free = reader_free,
    .read = padded_read,
    .close = padded_close,
};

enum status padded_new(struct source **out, struct source *source, uint32_t padding, uint64_t seed,
                       struct err *err)
{
    struct padded *padded = calloc(1, sizeof *padded);

    if (padded == NULL) {
        source_free(&source);
        return err_set(err, STATUS_MEMORY, 0, "no memory for a data set");
    }
    padded->source = *source;
    padded->source.ops = &padded_ops;
    padded->inner = source;
    padded->padding = padding;
    padded->seed = seed;
    *out = &padded->source;
    return STATUS_OK;
}
