/* Shared by formats without compression: rows of pixels at an offset in the file. */
#ifndef WORKER_DATA_PICTURE_PLAIN_H
#define WORKER_DATA_PICTURE_PLAIN_H

#include <stdbool.h>

#include "worker/data/picture/decoder.h"

struct plain {
    struct picture_file file;
    uint32_t width, height;
    uint32_t bytes_per_pixel;       /* 1: looked up in `colours`; 3 or more: the first three */
    bool is_blue_first, is_upwards; /* the last row is first */
    size_t begin, row_bytes;        /* in the file */
    uint8_t colours[256][3];        /* of 1-byte pixels; else [value][0] replaces each byte */
    uint8_t *rgb;
    size_t rgb_allocated;
};

enum status plain_new(void **decoder, struct err *err);
void plain_free(void *decoder);
/* Whether the file contains all rows; last step of open(). */
enum status plain_check(const struct plain *plain, struct err *err);
enum status plain_rows(void *decoder, const struct picture_box *box, picture_take_row *take,
                       void *context, struct err *err);

#endif
