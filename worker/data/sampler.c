/* torch's DistributedSampler. See sampler.h. */
#include "worker/data/sampler.h"

#include <assert.h>
#include <stdlib.h>

#include "worker/data/rng.h"

/* Images per rank if `world` ranks share `n`. */
static size_t rank_count(const struct sampler_options *options, size_t n, size_t world)
{
    if (options->drop_last && n % world != 0)
        return n < world ? 0 : (n - world + world - 1) / world; /* ceil((n - world) / world) */
    return (n + world - 1) / world;
}

/* The position, in an order of `n` images, of a rank's image number `position` of `count`. The
 * padding repeats the order: image number n + k is image number k. */
static size_t place_of(const struct sampler_options *options, size_t n, size_t count, size_t world,
                       size_t rank, size_t position)
{
    assert(n > 0);
    return (options->contiguous ? rank * count + position : rank + position * world) % n;
}

enum status sampler_init(struct sampler *sampler, const struct sampler_options *options,
                         struct err *err)
{
    assert(options->world > 0 && options->rank < options->world);

    if (options->image_count == 0 || options->image_count > SAMPLER_IMAGES_MAX)
        return err_set(err, STATUS_BAD_INPUT, 0, "a set of %zu images cannot be sampled: 1 to %zu",
                       options->image_count, (size_t)SAMPLER_IMAGES_MAX);
    sampler->options = *options;
    sampler->order = calloc(options->image_count, sizeof *sampler->order);
    if (sampler->order == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the order of %zu images",
                       options->image_count);
    sampler_set_epoch(sampler, 0);
    return STATUS_OK;
}

void sampler_close(struct sampler *sampler)
{
    free(sampler->order);
    sampler->order = NULL;
}

static void make_order(struct sampler *sampler, uint64_t epoch)
{
    const struct sampler_options *options = &sampler->options;
    struct rng rng;

    if (options->make_order != NULL) {
        options->make_order(options->user, epoch, sampler->order, options->image_count);
        return;
    }
    if (!options->shuffle) {
        for (size_t i = 0; i < options->image_count; i++)
            sampler->order[i] = (int64_t)i;
        return;
    }
    rng_seed(&rng, options->seed + epoch);
    rng_permute(&rng, sampler->order, options->image_count);
}

void sampler_set_epoch(struct sampler *sampler, uint64_t epoch)
{
    assert(sampler->order != NULL);
    make_order(sampler, epoch);
    sampler->left = sampler->options.image_count;
    sampler->count = rank_count(&sampler->options, sampler->left, sampler->options.world);
}

/* Removes the images that one part has seen: marks each with its complement, which is negative,
 * then closes the gaps. */
static enum status skip_part(struct sampler *sampler, const struct sampler_part *part,
                             struct err *err)
{
    const struct sampler_options *options = &sampler->options;
    const size_t group = (size_t)part->batch * part->accumulation_steps;
    const size_t count = rank_count(options, sampler->left, part->world);
    const size_t steps = (count + group - 1) / group;
    const size_t seen = part->steps < steps ? part->steps * group : count;
    size_t kept = 0;

    assert(part->world > 0 && group > 0);
    if (part->steps > steps)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "a world of %u with batches of %u x %u cannot have done %u steps on %zu "
                       "images",
                       part->world, part->batch, part->accumulation_steps, part->steps,
                       sampler->left);
    for (size_t rank = 0; rank < part->world; rank++)
        for (size_t i = 0; i < seen; i++) {
            int64_t *image =
                &sampler->order[place_of(options, sampler->left, count, part->world, rank, i)];
            *image = *image < 0 ? *image : ~*image;
        }
    for (size_t i = 0; i < sampler->left; i++)
        if (sampler->order[i] >= 0)
            sampler->order[kept++] = sampler->order[i];
    sampler->left = kept;
    return STATUS_OK;
}

enum status sampler_skip(struct sampler *sampler, const struct sampler_part *parts,
                         size_t part_count, struct err *err)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; status == STATUS_OK && i < part_count; i++)
        status = skip_part(sampler, &parts[i], err);
    if (status == STATUS_OK)
        sampler->count = rank_count(&sampler->options, sampler->left, sampler->options.world);
    return status;
}

int64_t sampler_index(const struct sampler *sampler, size_t position)
{
    assert(position < sampler->count);
    return sampler->order[place_of(&sampler->options, sampler->left, sampler->count,
                                   sampler->options.world, sampler->options.rank, position)];
}
