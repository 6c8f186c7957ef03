/* The data of a training: its sets, which images this rank sees, and its loaders. */
#include "worker/train/internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "worker/data/dataset.h"
#include "worker/data/digits.h"
#include "worker/data/idx.h"

enum { CLASSES = 10, DUMMY_TRAIN = 60000, DUMMY_VALIDATION = 10000, DUMMY_BYTES = 256 << 20 };

/* Drawn images are kept in memory, so there are fewer large ones. */
static size_t dummy_count(const struct dataset_shape *shape, size_t usual)
{
    const size_t room = DUMMY_BYTES / ((size_t)shape->channels * shape->height * shape->width);

    return room < usual ? room : usual;
}

static const struct net_normal no_normal = {.std = {1.0F, 1.0F, 1.0F, 1.0F}};

enum status train_data_open(struct train *train, struct err *err)
{
    const struct dataset_shape dummy_shape = train_model_dummy(train);
    const char *dir = train->options->data;
    enum status status;

    train->normal = no_normal;
    if (train->options->dummy) {
        status = dataset_new_drawn(&train->train_set, &dummy_shape,
                                   dummy_count(&dummy_shape, DUMMY_TRAIN), dataset_draw_noise,
                                   train->options->seed, err);
        if (status == STATUS_OK)
            status = dataset_new_drawn(&train->validation_set, &dummy_shape,
                                       dummy_count(&dummy_shape, DUMMY_VALIDATION),
                                       dataset_draw_noise, ~train->options->seed, err);
        return status;
    }
    if (dir == NULL) {
        status = digits_new_train(&train->train_set, err);
        return status != STATUS_OK ? status : digits_new_validation(&train->validation_set, err);
    }
    status = train->options->evaluate ? STATUS_OK
                                      : idx_read(&train->train_set, dir, "train", CLASSES, err);
    return status != STATUS_OK ? status
                               : idx_read(&train->validation_set, dir, "t10k", CLASSES, err);
}

/* A checkpoint's file name has eight digits for the step. */
static enum status check_steps(const struct train *train, struct err *err)
{
    const struct options *options = train->options;
    const uint64_t steps = (uint64_t)options->epochs * train->steps_per_epoch;

    if (options->evaluate || steps <= CHECKPOINT_STEP_MAX ||
        (options->max_steps > 0 && options->max_steps <= CHECKPOINT_STEP_MAX))
        return STATUS_OK;
    return err_set(err, STATUS_TOO_BIG, 0,
                   "--epochs %u of %u steps are %" PRIu64
                   " steps, at most %u can be counted: fewer epochs, or --max-steps",
                   options->epochs, train->steps_per_epoch, steps, CHECKPOINT_STEP_MAX);
}

static enum status check_shapes(struct train *train, struct err *err)
{
    struct dataset_shape a = train->validation_set->shape, b = a;

    if (train->train_set != NULL)
        b = train->train_set->shape;
    if (a.height == b.height && a.width == b.width && a.channels == b.channels)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "%s: training images are %u x %u pixels, validation images %u x %u",
                   train->options->data, b.width, b.height, a.width, a.height);
}

static enum status make_loaders(struct train *train, struct err *err)
{
    const struct sampler_options options = {
        .image_count = train->train_set != NULL ? train->train_set->count : 1,
        .rank = train->place->rank,
        .world = train->place->world,
        .seed = train->options->seed,
        .shuffle = true,
    };
    const struct loader_options loading = {
        .batch_max = train->options->batch,
        .threads = train->options->loader_threads,
    };
    enum status status = sampler_init(&train->sampler, &options, err);

    if (status != STATUS_OK)
        return status;
    train->indices = calloc(train->sampler.count, sizeof *train->indices);
    if (train->indices == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for an epoch's order");
    train->steps_per_epoch = (uint32_t)((train->sampler.count + train_group_images(train) - 1) /
                                        train_group_images(train));
    train->epoch_steps = train->steps_per_epoch;
    assert(train->steps_per_epoch > 0);
    status = check_steps(train, err);
    if (status == STATUS_OK && train->train_set != NULL)
        status = loader_new(&train->loader, train->train_set, &loading, err);
    if (status == STATUS_OK)
        status = loader_new(&train->validation_loader, train->validation_set, &loading, err);
    return status;
}

/* Each validation image is on exactly one rank. */
static enum status share_validation(struct train *train, struct err *err)
{
    size_t count = train->validation_set->count;

    train->validation_indices =
        calloc(count / train->place->world + 1, sizeof *train->validation_indices);
    if (train->validation_indices == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the validation's order");
    for (size_t i = train->place->rank; i < count; i += train->place->world)
        train->validation_indices[train->validation_count++] = (int64_t)i;
    assert(train->validation_count <= count / train->place->world + 1);
    return STATUS_OK;
}

enum status train_data_share(struct train *train, struct err *err)
{
    enum status status = check_shapes(train, err);

    if (status == STATUS_OK)
        status = make_loaders(train, err);
    return status == STATUS_OK ? share_validation(train, err) : status;
}
