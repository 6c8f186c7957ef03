/* How pictures become the images of a training. */
#include "worker/data/hash.h"
#include "worker/train/internal.h"

enum { PICTURE_SIDE = 224, SMALL_SIDE = 32 };

/* The side of the images that the net is given. */
static uint32_t picture_side(const struct train *train)
{
    const struct options *options = train->options;
    struct model_shape usual = {3, PICTURE_SIDE, PICTURE_SIDE, 0};

    if (options->image_size > 0)
        return options->image_size;
    if (train->model_file != NULL)
        return model_file_shape(train->model_file, &usual).height;
    return options->images.augment == AUGMENT_CIFAR ? SMALL_SIDE : PICTURE_SIDE;
}

/* What is done to pictures that are decoded. With --augment cifar they are first brought to the
 * size of the images; the random crop comes after that. */
enum status train_data_rules(const struct train *train, bool is_training,
                             struct picture_rules *rules, struct err *err)
{
    const struct options_images *images = &train->options->images;
    const bool crops = images->augment == AUGMENT_USUAL || images->augment == AUGMENT_IMAGENET;
    const uint32_t side = picture_side(train);

    picture_rules_set(rules, side, is_training && crops);
    if (images->resize > 0)
        rules->resize = images->resize;
    else if (images->augment == AUGMENT_CIFAR)
        rules->resize = side;
    if (images->scale[0] > 0) {
        rules->scale_min = images->scale[0];
        rules->scale_max = images->scale[1];
    }
    if (images->ratio[0] > 0) {
        rules->ratio_min = images->ratio[0];
        rules->ratio_max = images->ratio[1];
    }
    rules->dct_scaling = images->dct_scaling;
    if (rules->resize >= rules->size)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "--resize %u: the images are cut out of it and have %u pixels a side",
                   rules->resize, rules->size);
}

static uint64_t hash_real(uint64_t hash, double value)
{
    return hash_bytes(hash, &value, sizeof value);
}

static uint64_t or_one(uint64_t hash)
{
    return hash != 0 ? hash : 1;
}

uint64_t train_data_image_rules(const struct train *train)
{
    const struct options_images *images = &train->options->images;
    uint64_t hash = hash_u64(HASH_BEGIN, train->validation_set->shape.height);

    hash = hash_u64(hash, images->resize);
    for (uint32_t i = 0; i < NET_NORMAL_CHANNELS; i++)
        hash =
            hash_real(hash_real(hash, (double)train->normal.mean[i]), (double)train->normal.std[i]);
    return or_one(hash);
}

uint64_t train_data_training_rules(const struct train *train)
{
    const struct options *options = train->options;
    const struct options_images *images = &options->images;
    uint64_t hash = hash_u64(HASH_BEGIN, (uint64_t)images->augment);

    for (int i = 0; i < 2; i++)
        hash = hash_real(hash_real(hash, images->scale[i]), images->ratio[i]);
    hash = hash_u64(hash_u64(hash, images->dct_scaling), images->cache != NULL);
    return or_one(hash_u64(hash_u64(hash, images->shuffle_window), options->data_parallel));
}
