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
    /* Rank r takes the r-th of `world` equal consecutive pieces of the order instead of every
     * world-th image. */
    bool contiguous;
    /* Writes the order of an epoch, [image_count], in place of the permutation; every rank must get
     * the same order. NULL: a permutation, or without shuffle 0, 1, 2, ... */
    void (*make_order)(void *user, uint64_t epoch, int64_t *order, size_t image_count);
    void *user;
};

/* Steps of an epoch that were done by a world, possibly of another size than this one. */
struct sampler_part {
    uint32_t world, batch, accumulation_steps, steps;
};

/* Above this size torch.randperm draws other numbers: at::native::randperm_cpu. */
#define SAMPLER_IMAGES_MAX (UINT32_MAX / 20 - 1)

struct sampler {
    struct sampler_options options;
    int64_t *order; /* [left] of [image_count], owned */
    size_t left; /* images of the epoch for this world; after sampler_skip fewer than image_count */
    size_t count; /* images of this rank per epoch, or of the rest of this one */
};

/* Ready for epoch 0. Errors: STATUS_BAD_INPUT (no image, or too many), STATUS_MEMORY. */
enum status sampler_init(struct sampler *sampler, const struct sampler_options *options,
                         struct err *err);
void sampler_close(struct sampler *sampler);
/* Makes the order of `epoch`, counted from 0: DistributedSampler.set_epoch(). */
void sampler_set_epoch(struct sampler *sampler, uint64_t epoch);
/* Removes the images that `parts` have seen in this epoch, in their order; this world shares the
 * rest as it would share a whole epoch. So each image is seen once an epoch, except for those that
 * pad it. Errors: STATUS_BAD_INPUT (more steps than that world has in an epoch). */
enum status sampler_skip(struct sampler *sampler, const struct sampler_part *parts,
                         size_t part_count, struct err *err);
/* The index of image number `position` of this rank in this epoch; position < sampler->count. */
int64_t sampler_index(const struct sampler *sampler, size_t position);

#endif
