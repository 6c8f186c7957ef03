/* Which images a rank sees in an epoch, and in which order: torch.utils.data.DistributedSampler,
 * bit for bit.
 *
 * The order of an epoch is randperm(N) with the seed `seed` + epoch. Rank r takes images r, r +
 * world, r + 2 * world, ... of it. So that all ranks take the same number of steps, the order is
 * padded by repeating it from its start, or cut with drop_last. */
#ifndef WORKER_DATA_SAMPLER_H
#define WORKER_DATA_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct sampler_options {
    size_t image_count; /* in the whole set, 1 to SAMPLER_IMAGES_MAX */
    uint32_t rank, world;
    uint64_t seed;
    bool shuffle;
    bool drop_last;
};

/* Above this torch.randperm draws other numbers: at::native::randperm_cpu. */
#define SAMPLER_IMAGES_MAX (UINT32_MAX / 20 - 1)

struct sampler {
    struct sampler_options options;
    int64_t *order; /* [image_count], owned */
    size_t count;   /* images of this rank per epoch */
};

/* Ready for epoch 0. Errors: STATUS_BAD_INPUT (no image, or too many), STATUS_MEMORY. */
enum status sampler_init(struct sampler *sampler, const struct sampler_options *options,
                         struct err *err);
void sampler_close(struct sampler *sampler);
/* Makes the order of `epoch`, counted from 0: DistributedSampler.set_epoch(). */
void sampler_set_epoch(struct sampler *sampler, uint64_t epoch);
/* The index of image number `position` of this rank in this epoch; position < sampler->count. */
int64_t sampler_index(const struct sampler *sampler, size_t position);

#endif
