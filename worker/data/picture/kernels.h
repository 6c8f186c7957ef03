/* The loops over pixels, compiled for each instruction set; picture_kernels() returns the best
 * table for this processor. All give the same bytes. */
#ifndef WORKER_DATA_PICTURE_KERNELS_H
#define WORKER_DATA_PICTURE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "worker/data/picture/resample.h"

struct jpeg_kernels; /* kernels_jpeg.h */

struct picture_kernels {
    const char *name;
    const struct jpeg_kernels *jpeg;
    /* One row along x: out [axis->count][3], and one byte after it is overwritten; `row` begins at
     * column axis->in_begin. */
    void (*resample_x)(const struct resample_axis *axis, const uint8_t *row, uint8_t *out);
    /* One output row: the weighted sum of `n` rows. */
    void (*resample_y)(const uint8_t *const *rows, const int32_t *weights, uint32_t n,
                       size_t byte_count, uint8_t *out);
};

extern const struct picture_kernels picture_kernels_generic;
extern const struct picture_kernels picture_kernels_avx2;
extern const struct picture_kernels picture_kernels_avx512;

const struct picture_kernels *picture_kernels(void);

#endif
