/* torch's DistributedSampler. See sampler.h. */
#include "worker/data/sampler.h"

#include <assert.h>
#include <stdlib.h>

#include "worker/data/rng.h"

/* Images per rank and epoch. */
static size_t rank_count(const struct sampler_options *options)
{
    size_t n = options->image_count, world = options->world;

    if (options->drop_last && n % world != 0)
        return n < world ? 0 : (n - world + world - 1) / world; /* ceil((n - world) / world) */
    return (n + world - 1) / world;
}

enum status sampler_init(struct sampler *sampler, const struct sampler_options *options,
                         struct err *err)
{
    assert(options->world > 0 && options->rank < options->world);

    if (options->image_count == 0 || options->image_count > SAMPLER_IMAGES_MAX)
        return err_set(err, STATUS_BAD_INPUT, 0, "a set of %zu images cannot be sampled: 1 to %zu",
                       options->image_count, (size_t)SAMPLER_IMAGES_MAX);
    sampler->options = *options;
    sampler->count = rank_count(options);
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

void sampler_set_epoch(struct sampler *sampler, uint64_t epoch)
{
    struct rng rng;

    assert(sampler->order != NULL);
    if (!sampler->options.shuffle) {
        for (size_t i = 0; i < sampler->options.image_count; i++)
            sampler->order[i] = (int64_t)i;
        return;
    }
    rng_seed(&rng, sampler->options.seed + epoch);
    rng_permute(&rng, sampler->order, sampler->options.image_count);
}

int64_t sampler_index(const struct sampler *sampler, size_t position)
{
    assert(position < sampler->count);
    /* the padding repeats the order: image number image_count + k is image number k */
    return sampler->order[(sampler->options.rank + position * sampler->options.world) %
                          sampler->options.image_count];
}
