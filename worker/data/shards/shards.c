/* Tar shards as a source. See shards.h. */
#include "worker/data/shards/shards.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/draw.h"
#include "worker/data/fileio.h"
#include "worker/data/hash.h"
#include "worker/data/shards/index.h"

enum { OPEN_MAX_FILES = 16, NAME_BYTES = 160 };

struct shards {
    struct source source;
    struct shards_options options;
    struct index index;
    char **paths;
    size_t path_count;
    size_t *first;         /* [path_count + 1]: a shard's first sample; the last is their count */
    uint32_t *shard_order; /* [path_count], from shards_order() */
};

/* -- reading -- */

struct reader {
    const struct shards *shards;
    struct picture_reader *pictures;
    struct open_shard {
        int fd; /* -1: none */
        uint32_t shard;
    } open[OPEN_MAX_FILES];
    uint8_t *bytes;
    size_t capacity;
    char name[NAME_BYTES];
};

static void reader_free(void *user)
{
    struct reader *reader = user;

    for (size_t i = 0; i < OPEN_MAX_FILES; i++)
        if (reader->open[i].fd >= 0)
            (void)close(reader->open[i].fd);
    picture_reader_free(&reader->pictures);
    free(reader->bytes);
    free(reader);
}

static enum status reader_new(struct source *source, void **out, struct err *err)
{
    struct reader *reader = calloc(1, sizeof *reader);
    enum status status;

    if (reader == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to read shards");
    reader->shards = (const struct shards *)source;
    for (size_t i = 0; i < OPEN_MAX_FILES; i++)
        reader->open[i].fd = -1;
    status = picture_reader_new(&reader->pictures, err);
    if (status != STATUS_OK)
        reader_free(reader);
    else
        *out = reader;
    return status;
}

static enum status open_shard(const char *path, int *fd, struct err *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd >= 0)
        return STATUS_OK;
    return err_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, errno,
                   "%.160s: cannot open the shard: %s", path, strerror(errno));
}

static enum status shard_fd(struct reader *reader, uint32_t shard, int *fd, struct err *err)
{
    struct open_shard *place = &reader->open[shard % OPEN_MAX_FILES];
    enum status status = STATUS_OK;

    if (place->fd < 0 || place->shard != shard) {
        if (place->fd >= 0)
            (void)close(place->fd);
        status = open_shard(reader->shards->paths[shard], &place->fd, err);
        place->shard = shard;
    }
    *fd = place->fd;
    return status;
}

static enum status make_room(struct reader *reader, size_t byte_count, struct err *err)
{
    uint8_t *more;

    if (byte_count <= reader->capacity)
        return STATUS_OK;
    more = realloc(reader->bytes, byte_count);
    if (more == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for %zu bytes", reader->name,
                       byte_count);
    reader->bytes = more;
    reader->capacity = byte_count;
    return STATUS_OK;
}

static enum status read_file(struct source *source, void *user, int64_t index,
                             struct source_file *file, struct err *err)
{
    const struct shards *shards = (const struct shards *)source;
    struct reader *reader = user;
    const struct index_sample *sample = &shards->index.samples[index];
    const char *path = shards->paths[sample->shard], *shard = strrchr(path, '/');
    enum status status;
    int fd;

    assert(index >= 0 && (size_t)index < shards->index.count);
    (void)snprintf(reader->name, sizeof reader->name, "%.60s: %.90s",
                   shard != NULL ? shard + 1 : path, index_name(&shards->index, sample));
    status = shard_fd(reader, sample->shard, &fd, err);
    if (status == STATUS_OK)
        status = make_room(reader, sample->byte_count, err);
    if (status == STATUS_OK)
        status = fileio_read_at(fd, reader->name, reader->bytes, sample->byte_count, sample->offset,
                                err);
    *file = (struct source_file){reader->bytes, sample->byte_count, reader->name, sample->label};
    return status;
}

static enum status read_sample(struct source *source, void *user, uint64_t epoch, int64_t index,
                               uint8_t *image, int64_t *label, struct err *err)
{
    const struct shards *shards = (const struct shards *)source;
    struct reader *reader = user;
    struct source_file file;
    enum status status = read_file(source, user, index, &file, err);

    if (status != STATUS_OK)
        return status;
    *label = file.label;
    return picture_read(reader->pictures, file.bytes, file.byte_count, file.name,
                        &shards->options.rules, shards->options.seed, epoch, (uint64_t)index, image,
                        err);
}

static int64_t label_of(const struct source *source, int64_t index)
{
    return ((const struct shards *)source)->index.samples[index].label;
}

static void close_shards(struct source *source)
{
    struct shards *shards = (struct shards *)source;
    struct shard_list list = {shards->paths, shards->path_count};

    index_close(&shards->index);
    shard_list_free(&list);
    free(shards->first);
    free(shards->shard_order);
    free(shards);
}

static const struct source_ops shards_ops = {
    .reader_new = reader_new,
    .reader_free = reader_free,
    .read = read_sample,
    .read_file = read_file,
    .close = close_shards,
    .label = label_of,
};

bool shards_is(const struct source *source)
{
    return source->ops == &shards_ops;
}

const struct tar_refusals *shards_refusals(const struct source *source)
{
    assert(shards_is(source));
    return &((const struct shards *)source)->index.refusals;
}

/* -- opening -- */

static enum status index_all(struct shards *shards, const struct shard_list *list, struct err *err)
{
    enum status status = STATUS_OK;

    shards->paths = calloc(list->count, sizeof *shards->paths);
    shards->first = calloc(list->count + 1, sizeof *shards->first);
    shards->shard_order = calloc(list->count, sizeof *shards->shard_order);
    if (shards->paths == NULL || shards->first == NULL || shards->shard_order == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for %zu shards", list->count);
    for (size_t i = 0; status == STATUS_OK && i < list->count; i++) {
        int fd;

        shards->paths[i] = strdup(list->paths[i]);
        if (shards->paths[i] == NULL)
            return err_set(err, STATUS_MEMORY, 0, "no memory for %zu shards", list->count);
        shards->path_count++;
        status = open_shard(list->paths[i], &fd, err);
        if (status != STATUS_OK)
            return status;
        status = index_add(&shards->index, fd, list->paths[i], (uint32_t)i, err);
        (void)close(fd);
        shards->first[i + 1] = shards->index.count;
    }
    return status;
}

/* Hashes the samples; the hash does not depend on where the shards are. */
static uint64_t hash_of(const struct shards *shards)
{
    uint64_t hash = hash_u64(HASH_BEGIN, shards->index.class_count);

    for (size_t i = 0; i < shards->index.count; i++) {
        const struct index_sample *sample = &shards->index.samples[i];
        const char *name = index_name(&shards->index, sample);

        hash = hash_bytes(hash, name, strlen(name));
        hash = hash_u64(hash_u64(hash, sample->label), sample->byte_count);
    }
    return hash;
}

enum status shards_open(struct source **out, const struct shard_list *list,
                        const struct shards_options *options, const struct source *like,
                        struct err *err)
{
    struct shards *shards = calloc(1, sizeof *shards);
    const uint32_t size = options->rules.size;
    const struct tar_refusals *refusals;
    enum status status;

    assert(list->count > 0 && (like == NULL || shards_is(like)));
    if (shards == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for shards");
    shards->source = (struct source){.ops = &shards_ops,
                                     .shape = {.channels = 3, .height = size, .width = size}};
    shards->options = *options;
    refusals = &shards->index.refusals;
    status = index_all(shards, list, err);
    if (status == STATUS_OK && shards->index.count == 0)
        status =
            err_set(err, STATUS_BAD_INPUT, 0,
                    "%.100s: no sample in it: expected NAME.jpg and NAME.cls, or "
                    "CLASS/NAME.jpg%s%s",
                    list->paths[0], refusals->count > 0 ? "; left out: " : "", refusals->first);
    if (status == STATUS_OK)
        status = index_finish(&shards->index,
                              like != NULL ? &((const struct shards *)like)->index : NULL, err);
    shards->source.count = shards->index.count;
    shards->source.shape.classes = shards->index.class_count;
    shards->source.class_names = like == NULL ? (const char *const *)shards->index.classes : NULL;
    shards->source.hash = hash_of(shards);
    if (status != STATUS_OK)
        close_shards(&shards->source);
    else
        *out = &shards->source;
    return status;
}

/* -- the order of an epoch -- */

/* Fisher and Yates, in Durstenfeld's form. */
static void shuffle(struct draw *draw, uint32_t *items, uint32_t count)
{
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = draw_below(draw, i), item = items[i - 1];

        items[i - 1] = items[other];
        items[other] = item;
    }
}

/* Shuffles as if the samples went through a buffer of `window` samples: whenever the next one
 * comes, a random one leaves. */
static void shuffle_window(struct draw *draw, uint32_t window, int64_t *order, size_t count)
{
    for (size_t i = 0; window > 1 && i + 1 < count; i++) {
        size_t left = count - i;
        size_t other = i + draw_below(draw, left < window ? (uint32_t)left : window);
        int64_t sample = order[i];

        order[i] = order[other];
        order[other] = sample;
    }
}

void shards_order(const struct source *source, uint64_t seed, uint64_t epoch, uint32_t window,
                  int64_t *order)
{
    const struct shards *shards = (const struct shards *)source;
    struct draw draw = draw_begin(seed, epoch);
    size_t n = 0;

    assert(shards_is(source));
    for (uint32_t i = 0; i < shards->path_count; i++)
        shards->shard_order[i] = i;
    shuffle(&draw, shards->shard_order, (uint32_t)shards->path_count);
    for (size_t i = 0; i < shards->path_count; i++) {
        const size_t *first = &shards->first[shards->shard_order[i]];

        for (size_t sample = first[0]; sample < first[1]; sample++)
            order[n++] = (int64_t)sample;
    }
    assert(n == shards->source.count);
    shuffle_window(&draw, window, order, n);
}
