/* MNIST's IDX files, plain or .gz.
 * Format: bytes 0, 0, type, number of dimensions; each dimension as big-endian u32; the values.
 * Source: yann.lecun.com/exdb/mnist. */
#ifndef WORKER_DATA_IDX_H
#define WORKER_DATA_IDX_H

#include <stdbool.h>

#include "common/status.h"
#include "worker/data/dataset.h"

#define IDX_IMAGES_MAX 100000000U
#define IDX_SIDE_MAX 4096U
#define IDX_BYTES_MAX (UINT64_C(64) << 30)

/* Whether the folder has any of the files, plain or compressed. */
bool idx_is_in(const char *dir);

/* Labels below the greatest that no image of a set has. */
struct idx_unused {
    uint32_t count, first;
};

/* Reads `PREFIX-images-idx3-ubyte` and `PREFIX-labels-idx1-ubyte` (each also with .gz) in `dir`;
 * prefix: "train" or "t10k". There are as many classes as the greatest label of both sets says, at
 * least 2. Errors name the file, what was
 * expected and what was found: STATUS_NOT_FOUND, STATUS_IO, STATUS_BAD_INPUT (header, length,
 * labels), STATUS_TOO_BIG, STATUS_MEMORY. */
enum status idx_read(struct source **set, const char *dir, const char *prefix,
                     struct idx_unused *unused, struct err *err);

#endif
