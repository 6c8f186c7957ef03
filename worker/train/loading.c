/* Batches of this rank: its loaders, samples that cannot be read, time lost by waiting. */
#include "worker/train/internal.h"

#include <assert.h>

#include "common/io/mono.h"

enum { BOUND_STEPS = 10, BOUND_PERCENT = 10 };

/* -- memory of the net -- */

static void *allocate(void *user, size_t bytes)
{
    return net_images_new(user, bytes);
}

static void release(void *user, void *memory)
{
    net_images_free(user, memory);
}

static enum status settle(void *user, const void *memory, struct err *err)
{
    return net_images_settle(user, memory, err);
}

enum status train_loaders_make(struct train *train, struct err *err)
{
    const struct loader_memory memory = {allocate, release, settle, train->net,
                                         net_images_held(train->net)};
    const bool is_strict = train->options->images.strict;
    struct loader_options options = {
        .batch_max = train->options->batch,
        .threads = train_data_threads(train),
        .unreadable = is_strict ? LOADER_FAILS : LOADER_REPLACES,
        .memory = &memory,
    };
    enum status status = STATUS_OK;

    if (train->train_set != NULL)
        status = loader_new(&train->loader, train->train_set, &options, err);
    options.unreadable = is_strict ? LOADER_FAILS : LOADER_LEAVES_OUT;
    if (status == STATUS_OK)
        status = loader_new(&train->validation_loader, train->validation_set, &options, err);
    return status;
}

enum status train_next_batch(struct train *train, struct loader *loader, struct loader_batch *batch,
                             struct err *err)
{
    enum status status = loader_next(loader, batch, err);
    struct err reason;

    while (loader_take_reason(loader, &reason))
        log_line(LOG_WARNING, train_log_about(train), "%s; %s", reason.text,
                 loader == train->loader ? "another sample takes its place" : "left out");
    if (loader == train->loader)
        train->unreadable.training = loader_unreadable_count(loader);
    else
        train->unreadable.validation = loader_unreadable_count(loader);
    return status;
}

void train_tell_unreadable(const struct train *train, double training, double validation)
{
    if (train->place->rank != 0 || training + validation == 0)
        return;
    log_line(
        LOG_WARNING, train_log_about(train),
        "%.0f files could not be read: %.0f samples of this epoch were replaced by others, %.0f of "
        "the validation left out; --strict makes that an error",
        training + validation, training, validation);
}

void train_tell_data_bound(const struct train *train)
{
    const struct progress *progress = &train->progress;
    const uint64_t us = mono_us() - progress->begun_us;
    const uint32_t threads = train_data_threads(train);

    if (train->place->rank != 0 || progress->steps < BOUND_STEPS ||
        progress->times.wait_us * 100 <= us * BOUND_PERCENT)
        return;
    (void)printf("data-bound: %.0f %% of the time was spent waiting for images: more threads may "
                 "help (-j, now %u)%s\n",
                 100.0 * (double)progress->times.wait_us / (double)us, threads,
                 train->has_pictures && train->options->images.cache == NULL ? ", or --cache FILE"
                                                                             : "");
    (void)fflush(stdout);
}
