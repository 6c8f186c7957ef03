/* The loops of JPEG decoding, once for each instruction set; jpeg_kernels() has the best one for this
 * processor. All give the bytes of libjpeg-turbo. */
#ifndef WORKER_DATA_PICTURE_KERNELS_JPEG_H
#define WORKER_DATA_PICTURE_KERNELS_JPEG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A row of a colour that has half of the columns, and maybe half of the rows. */
struct jpeg_widen {
    const uint8_t *near, *other; /* the row that it is in, and the next nearest */
    bool is_two_rows;            /* else `other` is not looked at */
    bool has_left, has_right;    /* there are samples before and after */
    uint32_t count;              /* of samples; twice as many come out */
};

struct jpeg_kernels {
    /* The accurate integer IDCT of jidctint.c. block: of huffman_block(), aligned to 32; last: of the
     * coefficients in zigzag order, the last that is not 0. False, and nothing that counts in `out`,
     * where values are larger than those of any picture, so that other programs saturate. */
    bool (*idct)(const int16_t *block, int32_t last, uint8_t *out, size_t stride);
    /* Fancy upsampling of jdsample.c. sums: [count + 2], scratch; out: [2 * count] */
    void (*widen)(const struct jpeg_widen *rows, uint16_t *sums, uint8_t *out);
    /* YCbCr to RGB of jdcolor.c. rgb: [n][3]. Up to 31 more are read and written. */
    void (*to_rgb)(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint32_t n,
                   uint8_t *rgb);
};

extern const struct jpeg_kernels picture_kernels_generic_jpeg;
extern const struct jpeg_kernels picture_kernels_avx2_jpeg;
extern const struct jpeg_kernels picture_kernels_avx512_jpeg;

const struct jpeg_kernels *jpeg_kernels(void);

#endif
