/* The built-in set: ten handwriting-like digits, drawn by this file from a seed. No file, no
 * download.
 *
 * Each digit is a few splines in a unit box. Their points, size, slant, turn, place, thickness,
 * ink, a smooth warp, stray marks and noise all come from (seed, index). The arithmetic is plain +,
 * -, *, / and sqrt on floats, so every x86-64 machine draws the same bytes. Measured difficulty:
 * docs say what the ConvNet reaches; the tests hold it above 95 %. */
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

/* The two sets share the look and no image: DIGITS_TRAIN_COUNT and DIGITS_VALIDATION_COUNT images.
 */
enum status digits_new_train(struct dataset **set, struct err *err);
enum status digits_new_validation(struct dataset **set, struct err *err);

#endif
