/* Small pictures as files in memory, made by libjpeg and libpng. */
#ifndef TESTS_LIB_MADE_PICTURE_H
#define TESTS_LIB_MADE_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct made_picture {
    uint32_t width, height;
    int components;    /* JPEG: 1, 3 or 4 */
    int h, v;          /* JPEG: sampling factors of the first component */
    bool is_staged;    /* JPEG: progressive; PNG: interlaced */
    int restart;       /* JPEG: MCUs between restart markers; 0: none */
    int quality;       /* JPEG; 0: 85 */
    int depth, colour; /* PNG: bit depth and colour type */
};

/* Returns the file's bytes, allocated with malloc(). */
uint8_t *made_jpeg(const struct made_picture *picture, size_t *byte_count);
uint8_t *made_png(const struct made_picture *picture, size_t *byte_count);
/* Corrects the checksums of a PNG's chunks after a change of their bytes. */
void made_png_mend(uint8_t *bytes, size_t byte_count);

#endif
