/* A source (source.h) of labelled images that are kept in memory.
 *
 * It is either filled from files (idx.h), or its images are drawn when they are first read
 * (digits.h), so that a rank draws only the images that it uses. A drawn image depends on the seed
 * and its index only, not on the order of reads. Any number of threads may read without a
 * reader. */
#ifndef WORKER_DATA_DATASET_H
#define WORKER_DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct dataset_shape {
    uint32_t channels, height, width;
    uint32_t classes; /* at most 65536 */
};

/* Draws image `index` of the set with seed `seed`: pixels [height][width][channels], label <
 * classes. A pure function. */
typedef void (*dataset_draw)(uint64_t seed, uint64_t index, const struct dataset_shape *shape,
                             uint8_t *pixels, uint16_t *label);

struct source;

/* A set of the given images. `pixels` [image_count][height][width][channels] and `labels`
 * [image_count] come from malloc() and are owned by the set, also on failure. */
enum status dataset_new(struct source **set, const struct dataset_shape *shape, size_t image_count,
                        uint8_t *pixels, uint16_t *labels, struct err *err);
/* A set whose images are drawn by `draw`. Errors: STATUS_MEMORY. */
enum status dataset_new_drawn(struct source **set, const struct dataset_shape *shape,
                              size_t image_count, dataset_draw draw, uint64_t seed,
                              struct err *err);

/* A dataset_draw of random pixels and labels of any shape: --dummy. */
void dataset_draw_noise(uint64_t seed, uint64_t index, const struct dataset_shape *shape,
                        uint8_t *pixels, uint16_t *label);

#endif
