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

/* Reads `PREFIX-images-idx3-ubyte` and `PREFIX-labels-idx1-ubyte` (each also with .gz) in `dir`;
 * prefix: "train" or "t10k". Every label must be below `classes`. Errors name the file, what was
 * expected and what was found: STATUS_NOT_FOUND, STATUS_IO, STATUS_BAD_INPUT (header, length,
 * label), STATUS_TOO_BIG, STATUS_MEMORY. */
enum status idx_read(struct source **set, const char *dir, const char *prefix, uint32_t classes,
                     struct err *err);

#endif
