/* CIFAR-10's binary files: a byte with the label, then 3,072 with the picture, all red values, all
 * green, all blue, 32 rows of 32 each. Source: cs.toronto.edu/~kriz/cifar.html. */
#ifndef WORKER_DATA_CIFAR_H
#define WORKER_DATA_CIFAR_H

#include <stdbool.h>

#include "common/status.h"
#include "worker/data/source.h"

#define CIFAR_SIDE 32U
#define CIFAR_CLASSES 10U

/* Whether `dir`, or `dir`/cifar-10-batches-bin, has a file of CIFAR-10, packed or not. */
bool cifar_is_there(const char *dir);
/* Reads data_batch_1.bin to data_batch_5.bin, or test_batch.bin. Errors name the file:
 * STATUS_NOT_FOUND, STATUS_UNSUPPORTED (it is still packed), STATUS_BAD_INPUT (its size, a label),
 * STATUS_IO, STATUS_MEMORY. */
enum status cifar_read(struct source **set, const char *dir, bool is_training, struct err *err);

#endif
