/* A set of labelled images, kept in memory as bytes and read as floats from 0 to 1.
 *
 * A set is either filled from files (idx.h), or its images are drawn when they are first read
 * (digits.h), so that a rank draws only the images that it uses. A drawn image depends on the seed
 * and its index only, not on the order of reads. */
#ifndef WORKER_DATA_DATASET_H
#define WORKER_DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct dataset_shape {
    uint32_t channels, height, width;
    uint32_t classes; /* at most 65536 */
};

/* Draws image `index` of the set with seed `seed`: pixels [channels * height * width], label <
 * classes. A pure function. */
typedef void (*dataset_draw)(uint64_t seed, uint64_t index, const struct dataset_shape *shape,
                             uint8_t *pixels, uint16_t *label);

struct dataset;

/* A set of the given images. `pixels` [image_count][channels][height][width] and `labels`
 * [image_count] come from malloc() and are owned by the set, also on failure. */
enum status dataset_new(struct dataset **set, const struct dataset_shape *shape, size_t image_count,
                        uint8_t *pixels, uint16_t *labels, struct err *err);
/* A set whose images are drawn by `draw`. Errors: STATUS_MEMORY. */
enum status dataset_new_drawn(struct dataset **set, const struct dataset_shape *shape,
                              size_t image_count, dataset_draw draw, uint64_t seed,
                              struct err *err);
void dataset_free(struct dataset **set);

size_t dataset_count(const struct dataset *set);
struct dataset_shape dataset_shape(const struct dataset *set);
/* Reads `n` images as floats, pixel / 255 as PyTorch divides.
 *   indices: [n], each below dataset_count()
 *   images:  [n][channels][height][width], written
 *   labels:  [n], written
 * One thread at a time per set. */
void dataset_fetch(struct dataset *set, const int64_t *indices, uint32_t n, float *images,
                   int64_t *labels);

/* The same, as bytes. */
void dataset_fetch_bytes(struct dataset *set, const int64_t *indices, uint32_t n, uint8_t *images,
                         int64_t *labels);

/* A dataset_draw of random pixels and labels of any shape: --dummy. */
void dataset_draw_noise(uint64_t seed, uint64_t index, const struct dataset_shape *shape,
                        uint8_t *pixels, uint16_t *label);

#endif
