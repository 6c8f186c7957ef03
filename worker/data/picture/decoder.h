/* Shared by the decoders of all formats: open() reads only the picture's size, then rows() gives
 * the rows of a box. */
#ifndef WORKER_DATA_PICTURE_DECODER_H
#define WORKER_DATA_PICTURE_DECODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

enum { PICTURE_SIDE_MAX = 1 << 30 };

/* A file in memory. */
struct picture_file {
    const uint8_t *bytes;
    size_t byte_count;
    const char *name; /* for errors */
};

struct picture_box {
    uint32_t x, y, width, height;
};

/* Takes the next row of the box: [width][3], with RESAMPLE_ROW_PAD readable bytes after it. */
typedef void picture_take_row(void *context, const uint8_t *row);

/* A decoder keeps its own state between the calls, one picture at a time. */
struct picture_format {
    const char *name; /* "JPEG" */
    bool (*is_this)(const struct picture_file *file);
    enum status (*decoder_new)(void **decoder, struct err *err);
    void (*decoder_free)(void *decoder);
    /* Reads the header. The file must stay valid until the last row. */
    enum status (*open)(void *decoder, const struct picture_file *file, uint32_t *width,
                        uint32_t *height, struct err *err);
    /* May be NULL: reduces the picture by 2, 4 or 8 while it is decoded; returns its new size. */
    enum status (*reduce)(void *decoder, uint32_t by, uint32_t *width, uint32_t *height,
                          struct err *err);
    /* Gives the rows of `box`, from top to bottom. On failure some rows may have been given. */
    enum status (*rows)(void *decoder, const struct picture_box *box, picture_take_row *take,
                        void *context, struct err *err);
};

extern const struct picture_format picture_jpeg;
extern const struct picture_format picture_png;
extern const struct picture_format picture_pnm;
extern const struct picture_format picture_bmp;
extern const struct picture_format picture_tiff;
extern const struct picture_format picture_webp;

#endif
