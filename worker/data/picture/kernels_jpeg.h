/* The loops of JPEG decoding, compiled for each instruction set; jpeg_kernels() returns the best
 * table for this processor. All give the bytes of libjpeg-turbo. */
#ifndef WORKER_DATA_PICTURE_KERNELS_JPEG_H
#define WORKER_DATA_PICTURE_KERNELS_JPEG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A row of a colour that has half of the columns, and maybe half of the rows. */
struct jpeg_widen {
    const uint8_t *near, *other; /* the row that contains the output, and the next nearest */
    bool is_two_rows;            /* false: `other` is not read */
    bool has_left, has_right;    /* there are samples before and after the row */
    uint32_t count;              /* samples; the output has twice as many */
};

struct jpeg_kernels {
    /* The accurate integer IDCT of jidctint.c. block: from huffman_block(), aligned to 32; last:
     * index in zigzag order of the last coefficient that is not 0. False, with `out` undefined, if
     * values are larger than those of any real picture, for which other programs saturate. */
    bool (*idct)(const int16_t *block, int32_t last, uint8_t *out, size_t stride);
    /* Fancy upsampling of jdsample.c. sums: [count + 2], scratch; out: [2 * count] */
    void (*widen)(const struct jpeg_widen *rows, uint16_t *sums, uint8_t *out);
    /* YCbCr to RGB of jdcolor.c. rgb: [n][3]. Reads and writes up to 31 more pixels. */
    void (*to_rgb)(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint32_t n,
                   uint8_t *rgb);
};

extern const struct jpeg_kernels picture_kernels_generic_jpeg;
extern const struct jpeg_kernels picture_kernels_avx2_jpeg;
extern const struct jpeg_kernels picture_kernels_avx512_jpeg;

const struct jpeg_kernels *jpeg_kernels(void);

#endif
