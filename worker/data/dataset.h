/* A set of labelled images, kept in memory as bytes and given out as floats from 0 to 1.
 *
 * Two kinds: filled from files (worker/data/idx.h) or drawn image by image when first asked for
 * (worker/data/digits.h), so that a rank pays for what it sees alone. A drawn image depends on the
 * seed and its index, never on the order of asking. */
#ifndef WORKER_DATA_DATASET_H
#define WORKER_DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct dataset_shape {
    uint32_t channels, height, width;
    uint32_t classes; /* at most 65536 */
};

/* Draws image `index` of the set `seed`: pixels [channels * height * width], label < classes. Pure.
 */
typedef void (*dataset_draw)(uint64_t seed, uint64_t index, const struct dataset_shape *shape,
                             uint8_t *pixels, uint16_t *label);

struct dataset;

/* Takes `pixels` [image_count][channels][height][width] and `labels` [image_count], both from
 * malloc, also on failure. */
enum status dataset_new(struct dataset **set, const struct dataset_shape *shape, size_t image_count,
                        uint8_t *pixels, uint16_t *labels, struct err *err);
enum status dataset_new_drawn(struct dataset **set, const struct dataset_shape *shape,
                              size_t image_count, dataset_draw draw, uint64_t seed,
                              struct err *err);
void dataset_free(struct dataset **set);

size_t dataset_count(const struct dataset *set);
struct dataset_shape dataset_shape(const struct dataset *set);
/* images: [n][channels][height][width], pixel / 255 as PyTorch divides; labels: [n]; indices: [n],
 * < count. One thread at a time for one set. */
void dataset_fetch(struct dataset *set, const int64_t *indices, uint32_t n, float *images,
                   int64_t *labels);

/* The same as bytes. */
void dataset_fetch_bytes(struct dataset *set, const int64_t *indices, uint32_t n, uint8_t *images,
                         int64_t *labels);

/* Random pixels and labels of any shape: --dummy. A dataset_draw. */
void dataset_draw_noise(uint64_t seed, uint64_t index, const struct dataset_shape *shape,
                        uint8_t *pixels, uint16_t *label);

#endif
