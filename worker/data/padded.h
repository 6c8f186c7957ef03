/* A source around another one: torchvision's RandomCrop(size, padding) and RandomHorizontalFlip,
 * the usual augmentation of small pictures (CIFAR). The image is padded with black pixels on every
 * side, cut to its size at a random place, and mirrored with probability 0.5. */
#ifndef WORKER_DATA_PADDED_H
#define WORKER_DATA_PADDED_H

#include "worker/data/source.h"

/* `source` is owned, also on failure. Draws of a sample come from (seed, epoch, index) as in
 * picture/picture.h: one number for the top, one for the left, one for the mirror. Errors:
 * STATUS_MEMORY. */
enum status padded_new(struct source **padded, struct source *source, uint32_t padding,
                       uint64_t seed, struct err *err);

#endif
