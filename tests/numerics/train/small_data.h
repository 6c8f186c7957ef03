/* Small sets of images as files in MNIST's format (IDX), in a folder of the running test. A run
 * over them takes a fraction of the time that the built-in sets take, which have 60,000 images to
 * train on and 10,000 to validate with. */
#ifndef TESTS_NUMERICS_TRAIN_SMALL_DATA_H
#define TESTS_NUMERICS_TRAIN_SMALL_DATA_H

#include <stddef.h>
#include <stdint.h>

enum { SMALL_DATA_SIDE = 28, SMALL_DATA_PIXELS = SMALL_DATA_SIDE * SMALL_DATA_SIDE };

/* Writes the two files of one set to the existing folder `dir`.
 *   prefix: "train" or "t10k"
 *   pixels: [count][28][28]; labels: [count], each below 10 */
void small_data_write(const char *dir, const char *prefix, const uint8_t *pixels,
                      const uint8_t *labels, uint32_t count);
/* Make the folder test_dir()/data with both sets.
 * digits: as worker/data/digits.h draws them.
 * noise: every pixel and label at random, so that no two pixels of a pool are equal as they are in
 *     a plain background. */
void small_data_digits(uint32_t train_count, uint32_t validation_count);
void small_data_noise(uint32_t train_count, uint32_t validation_count);

#endif
