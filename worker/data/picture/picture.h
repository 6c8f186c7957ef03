/* Pictures: decodes a JPEG, PNG, PNM or BMP file in memory to the square of bytes that is a net's
 * input, as torchvision's transforms make it from what Pillow decodes.
 *
 * The format is recognised by the first bytes, never by the name. Every picture becomes RGB as by
 * Pillow's convert("RGB"): grey is repeated, CMYK is converted, alpha is dropped, EXIF is ignored.
 * Resampling is Pillow's antialiased bilinear filter, to the bit. Of a JPEG only the rows and
 * columns that the crop needs are computed.
 *
 * Draws: those of sample `index` in `epoch` come from draw_begin(d, index), where d is the first
 * number of draw_begin(seed, epoch) (common/draw.h). A try of the random crop takes one number for
 * the area and one for the ratio; the first try that fits takes one for the top and one for the
 * left. The flip takes the next number. */
#ifndef WORKER_DATA_PICTURE_PICTURE_H
#define WORKER_DATA_PICTURE_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/* Width times height; more is refused before anything is allocated. The limit of Pillow's own
 * check for decompression bombs. */
#define PICTURE_PIXELS_MAX 178956970u
#define PICTURE_SIZE_MAX 4096u /* limit of `size` */

/* What torchvision's transforms do. picture_rules_set() has their defaults. */
struct picture_rules {
    uint32_t size;    /* side of the output square: 1 to PICTURE_SIZE_MAX */
    bool is_training; /* RandomResizedCrop(size) and RandomHorizontalFlip, else Resize(resize) and
                         CenterCrop(size) */
    uint32_t resize;  /* the shorter side before the centre crop: size to 2 * PICTURE_SIZE_MAX */
    double scale_min, scale_max; /* of the crop's area, relative to the picture's: 0 < min <= max */
    double ratio_min, ratio_max; /* width by height: 0 < min <= max */
    double flip;                 /* probability, 0 to 1 */
    bool dct_scaling; /* a JPEG may be decoded at 1/2, 1/4 or 1/8 if the crop is larger than the
                         output by that factor: faster, but different pixels */
};

/* torchvision's defaults for pictures of `size`, without DCT scaling; the shorter side is size *
 * 256 / 224. */
void picture_rules_set(struct picture_rules *rules, uint32_t size, bool is_training);

/* The decoders and buffers of one thread. */
struct picture_reader;

enum status picture_reader_new(struct picture_reader **reader, struct err *err);
void picture_reader_free(struct picture_reader **reader);
/* Sets a lower limit than PICTURE_PIXELS_MAX for this reader. */
void picture_reader_limit(struct picture_reader *reader, uint32_t pixels_max);

/* Reads the picture as sample `index` of `epoch`.
 *   bytes: the whole file; name: the file's, for errors
 *   image: [size][size][3], written; undefined after an error
 * Errors: STATUS_BAD_INPUT (damaged, cut off, not a picture), STATUS_TOO_BIG (over
 * PICTURE_PIXELS_MAX), STATUS_UNSUPPORTED (another format), STATUS_MEMORY. */
enum status picture_read(struct picture_reader *reader, const void *bytes, size_t byte_count,
                         const char *name, const struct picture_rules *rules, uint64_t seed,
                         uint64_t epoch, uint64_t index, uint8_t *image, struct err *err);

/* A whole picture in memory. */
struct picture {
    uint32_t width, height;
    const uint8_t *pixels; /* [height][width][3] */
};

/* Decodes the whole picture. `picture` is valid until the next call with this reader. Errors: as
 * picture_read(). */
enum status picture_decode(struct picture_reader *reader, const void *bytes, size_t byte_count,
                           const char *name, struct picture *picture, struct err *err);

/* The same as picture_read(), for a decoded picture. Errors: STATUS_MEMORY. */
enum status picture_crop(struct picture_reader *reader, const struct picture *picture,
                         const struct picture_rules *rules, uint64_t seed, uint64_t epoch,
                         uint64_t index, uint8_t *image, struct err *err);

/* Resizes a whole decoded picture. out: [height][width][3]. Errors: STATUS_MEMORY. */
enum status picture_resize(struct picture_reader *reader, const struct picture *picture,
                           uint32_t width, uint32_t height, uint8_t *out, struct err *err);

/* The size that torchvision's Resize(resize) gives a picture of width by height. */
void picture_resized(uint32_t width, uint32_t height, uint32_t resize, uint64_t *resized_width,
                     uint64_t *resized_height);

#endif
