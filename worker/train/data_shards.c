/* Training from tar shards, and from a cache of decoded pictures. */
#include "worker/train/internal.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "worker/data/cache/cache.h"
#include "worker/data/hash.h"
#include "worker/data/shards/shards.h"

/* -- shards -- */

bool train_shards_are_in(const char *dir)
{
    bool found = shard_list_is_pattern(dir);

    for (int is_validation = 0; is_validation < 2 && !found; is_validation++) {
        struct shard_list list;

        if (shard_list_find(&list, dir, is_validation, NULL) == STATUS_OK) {
            found = list.count > 0;
            shard_list_free(&list);
        }
    }
    return found;
}

/* What was left out of the samples. */
static enum status tell_refusals(const struct train *train, const struct source *set,
                                 struct err *err)
{
    const struct tar_refusals *refusals = shards_refusals(set);

    if (refusals->count == 0)
        return STATUS_OK;
    if (train->options->images.strict)
        return err_set(err, STATUS_BAD_INPUT, 0, "%.200s (--strict)", refusals->first);
    if (train->place->local_rank == 0)
        log_line(LOG_WARNING, train_log_about(train), "%" PRIu64 " %s left out, the first: %s",
                 refusals->count,
                 refusals->count == 1 ? "file of the shards was" : "files of the shards were",
                 refusals->first);
    return STATUS_OK;
}

static enum status open_list(const struct train *train, const char *dir, bool is_training,
                             const struct source *like, struct source **set, struct err *err)
{
    struct shards_options options = {.seed = train->options->seed};
    struct shard_list list;
    enum status status = train_data_rules(train, is_training, &options.rules, err);

    if (status == STATUS_OK)
        status = shard_list_find(&list, dir, !is_training, err);
    if (status != STATUS_OK)
        return status;
    if (list.count == 0)
        status = err_set(err, STATUS_NOT_FOUND, 0, "%.120s: no %s shards: expected %s", dir,
                         is_training ? "training" : "validation",
                         is_training ? "train*.tar or train/*.tar" : "val*.tar or val/*.tar");
    else
        status = shards_open(set, &list, &options, like, err);
    shard_list_free(&list);
    return status;
}

/* The classes are those of the training shards, also where only the validation runs. */
enum status train_shards_open(struct train *train, const char *dir, bool is_training,
                              struct source **set, struct err *err)
{
    struct source *classes = NULL;
    const struct source *like = is_training ? NULL : train->train_set;
    enum status status = STATUS_OK;

    if (!is_training && like == NULL) {
        status = open_list(train, dir, true, NULL, &classes, err);
        like = classes;
        if (status == STATUS_NOT_FOUND)
            status = STATUS_OK; /* validation shards alone */
    }
    if (status == STATUS_OK)
        status = open_list(train, dir, is_training, like, set, err);
    source_free(&classes);
    if (status == STATUS_OK)
        status = tell_refusals(train, *set, err);
    if (status == STATUS_OK && is_training)
        train->shards = *set;
    return status;
}

void train_shards_order(void *user, uint64_t epoch, int64_t *order, size_t image_count)
{
    const struct train *train = user;

    assert(image_count == train->shards->count);
    (void)image_count;
    shards_order(train->shards, train->options->seed, epoch, train->options->images.shuffle_window,
                 order);
}

/* -- the cache -- */

/* The same number for all ranks of a job: the first that wants the cache rebuilt does it. */
static uint64_t job_number(const struct agent_place *place)
{
    if (place->job_id == 0)
        return 0;
    return hash_u64(hash_bytes(HASH_BEGIN, place->cluster, strlen(place->cluster)), place->job_id) |
           1;
}

static enum status cache_set(const struct train *train, bool is_training, struct source **set,
                             struct err *err)
{
    const struct options_images *images = &train->options->images;
    struct cache_options options = {.plain_crop = is_training && images->augment == AUGMENT_CROP,
                                    .seed = train->options->seed,
                                    .rebuild = images->cache_rebuild,
                                    .job = job_number(train->place)};
    char path[PATH_MAX];
    struct source *from = *set;
    enum status status = train_data_rules(train, is_training, &options.rules, err);
    int n;

    if (from == NULL || status != STATUS_OK)
        return status;
    if (from->ops->read_file == NULL)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s is for pictures in a folder or in shards: %.100s is in memory already",
                       images->cache != NULL ? "--cache" : "--augment crop",
                       train->options->data != NULL ? train->options->data : "this data");
    n = snprintf(path, sizeof path, "%s%s", images->cache != NULL ? images->cache : "",
                 is_training ? "" : ".val");
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, STATUS_TOO_BIG, 0, "--cache %.100s...: the path is too long",
                       images->cache);
    *set = NULL; /* owned by what comes */
    return cache_open(set, from, images->cache != NULL ? path : NULL, &options, err);
}

enum status train_cache_open(struct train *train, struct err *err)
{
    const struct options_images *images = &train->options->images;
    enum status status = STATUS_OK;

    if (images->cache == NULL && images->augment != AUGMENT_CROP)
        return STATUS_OK;
    status = cache_set(train, true, &train->train_set, err);
    return status == STATUS_OK ? cache_set(train, false, &train->validation_set, err) : status;
}
