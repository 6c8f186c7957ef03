/* Batches of this rank: its loaders, samples that cannot be read, time lost by waiting. */
#include "worker/train/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/io/mono.h"

enum { BOUND_STEPS = 10, BOUND_PERCENT = 10 };
/* A class is named that lost a quarter of its pictures or more; so many classes at most. */
enum { LOST_PART = 4, LOST_NAMED = 5 };

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

/* -- samples that cannot be read -- */

/* Appends "class cat lost 4 of 12 training pictures" for each class of `set` that lost many. `lost`: [classes] over
 * all ranks. */
static void name_classes(const struct source *set, const double *lost, const char *of, char *text,
                         size_t room, uint32_t *count)
{
    double *all = calloc(set->shape.classes, sizeof *all);

    for (size_t i = 0; all != NULL && i < set->count; i++)
        all[set->ops->label(set, (int64_t)i)]++;
    for (uint32_t c = 0; all != NULL && c < set->shape.classes; c++) {
        const size_t used = strlen(text);

        if (lost[c] == 0 || lost[c] * LOST_PART < all[c] || ++*count > LOST_NAMED)
            continue;
        (void)snprintf(text + used, room - used, "%sclass ", used > 0 ? "; " : "");
        if (set->class_names != NULL)
            (void)snprintf(text + strlen(text), room - strlen(text), "%.60s", set->class_names[c]);
        else
            (void)snprintf(text + strlen(text), room - strlen(text), "%u", c);
        (void)snprintf(text + strlen(text), room - strlen(text), " lost %s%.0f of %.0f %s pictures",
                       lost[c] >= all[c] ? "all, " : "", lost[c], all[c], of);
    }
    free(all);
}

/* Collective. */
static enum status tell_classes(const struct train *train, struct err *err)
{
    const struct source *const sets[] = {train->train_set, train->validation_set};
    const struct loader *const loaders[] = {train->loader, train->validation_loader};
    static const char *const names[] = {"training", "validation"};
    char text[LOST_NAMED * 130] = "";
    uint32_t count = 0;
    enum status status = STATUS_OK;

    for (int i = 0; status == STATUS_OK && i < 2; i++) {
        const uint32_t *own = loaders[i] != NULL ? loader_unreadable_classes(loaders[i]) : NULL;
        const uint32_t classes = own != NULL ? sets[i]->shape.classes : 0;
        double *lost = calloc(classes > 0 ? classes : 1, sizeof *lost);

        if (lost == NULL)
            return err_set(err, STATUS_MEMORY, 0, "no memory to count unreadable pictures");
        for (uint32_t c = 0; c < classes; c++)
            lost[c] = own[c];
        if (train->comm != NULL && classes > 0)
            status = comm_all_reduce_sum_f64(train->comm, lost, classes, err);
        if (status == STATUS_OK && classes > 0 && train->place->rank == 0)
            name_classes(sets[i], lost, names[i], text, sizeof text, &count);
        free(lost);
    }
    if (status == STATUS_OK && text[0] != '\0')
        log_line(LOG_WARNING, train_log_about(train), "%s%s: these files cannot be read", text,
                 count > LOST_NAMED ? "; and others" : "");
    return status;
}

enum status train_tell_unreadable(const struct train *train, double training, double validation,
                                  struct err *err)
{
    if (training + validation == 0)
        return STATUS_OK;
    if (train->place->rank == 0)
        log_line(LOG_WARNING, train_log_about(train),
                 "%.0f files could not be read: %.0f samples of this epoch were replaced by "
                 "others, %.0f of the validation left out; --strict makes that an error",
                 training + validation, training, validation);
    return tell_classes(train, err);
}

/* -- time lost by waiting -- */

void train_tell_data_bound(const struct train *train)
{
    const struct progress *progress = &train->progress;
    const uint64_t us = mono_us() - progress->epoch_begun_us;
    const uint32_t threads = train_data_threads(train);

    if (train->place->rank != 0 || progress->epoch_steps < BOUND_STEPS ||
        progress->epoch_wait_us * 100 <= us * BOUND_PERCENT)
        return;
    (void)printf("data-bound: %.0f %% of the time was spent waiting for images: more threads may "
                 "help (-j, now %u)%s\n",
                 100.0 * (double)progress->epoch_wait_us / (double)us, threads,
                 train->has_pictures && train->options->images.cache == NULL ? ", or --cache FILE"
                                                                             : "");
    (void)fflush(stdout);
}
