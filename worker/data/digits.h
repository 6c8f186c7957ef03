/* The built-in set: handwriting-like digits, drawn from a seed. No file, no download.
 *
 * Each digit is a few splines in a unit box. Their points, size, slant, rotation, position,
 * thickness, ink, a smooth warp, stray marks and noise depend on (seed, index). The arithmetic is
 * +, -, *, / and sqrt on floats, so every x86-64 machine draws the same bytes. */
#ifndef WORKER_DATA_DIGITS_H
#define WORKER_DATA_DIGITS_H

#include "worker/data/dataset.h"

#define DIGITS_SIDE 28
#define DIGITS_CLASSES 10
#define DIGITS_TRAIN_COUNT 60000
#define DIGITS_VALIDATION_COUNT 10000

/* A dataset_draw for shape {1, 28, 28, 10}. */
void digits_draw(uint64_t seed, uint64_t index, const struct dataset_shape *shape, uint8_t *pixels,
                 uint16_t *label);

/* The training set and the validation set, of DIGITS_TRAIN_COUNT and DIGITS_VALIDATION_COUNT
 * images. They have different seeds, so no image is in both. */
enum status digits_new_train(struct source **set, struct err *err);
enum status digits_new_validation(struct source **set, struct err *err);

#endif
