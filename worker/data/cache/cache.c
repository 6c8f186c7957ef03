/* Pictures kept in a file. See cache.h. */
#include "worker/data/cache/cache.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/draw.h"
#include "common/log.h"
#include "worker/data/cache/file.h"

enum { PROBES = 16 }; /* pictures that are read to estimate the file's size */

struct cache {
    struct source source;
    struct source *from;
    struct cache_options options;
    struct cache_file file;
    _Atomic uint64_t read, decoded, damaged;
};

struct reader {
    struct cache *cache;
    void *from;
    struct picture_reader *pictures;
    uint8_t *resized;
    size_t resized_bytes;
};

/* -- readers -- */

static void reader_free(void *user)
{
    struct reader *reader = user;

    if (reader->from != NULL)
        reader->cache->from->ops->reader_free(reader->from);
    picture_reader_free(&reader->pictures);
    free(reader->resized);
    free(reader);
}

static enum status reader_new(struct source *source, void **out, struct err *err)
{
    struct cache *cache = (struct cache *)source;
    struct reader *reader = calloc(1, sizeof *reader);
    enum status status;

    if (reader == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to read a cache");
    reader->cache = cache;
    status = source_reader_new(cache->from, &reader->from, err);
    if (status == STATUS_OK)
        status = picture_reader_new(&reader->pictures, err);
    if (status != STATUS_OK)
        reader_free(reader);
    else
        *out = reader;
    return status;
}

/* -- a picture as it is kept -- */

static enum status make_room(struct reader *reader, size_t byte_count, struct err *err)
{
    if (byte_count <= reader->resized_bytes)
        return STATUS_OK;
    free(reader->resized);
    reader->resized_bytes = 0;
    reader->resized = malloc(byte_count);
    if (reader->resized == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a picture of %zu bytes", byte_count);
    reader->resized_bytes = byte_count;
    return STATUS_OK;
}

/* Resizes the picture so that its shorter side is `side`; smaller pictures stay as they are. */
static enum status shrink(struct reader *reader, uint32_t side, struct picture *picture,
                          struct err *err)
{
    const uint32_t shorter = picture->width < picture->height ? picture->width : picture->height;
    uint64_t width, height;
    enum status status;

    if (shorter <= side)
        return STATUS_OK;
    picture_resized(picture->width, picture->height, side, &width, &height);
    status = make_room(reader, (size_t)(width * height * 3), err);
    if (status == STATUS_OK)
        status = picture_resize(reader->pictures, picture, (uint32_t)width, (uint32_t)height,
                                reader->resized, err);
    *picture = (struct picture){(uint32_t)width, (uint32_t)height, reader->resized};
    return status;
}

static enum status decode(struct reader *reader, int64_t index, struct picture *picture,
                          int64_t *label, struct err *err)
{
    const struct cache *cache = reader->cache;
    struct source_file file;
    enum status status = cache->from->ops->read_file(cache->from, reader->from, index, &file, err);

    if (status == STATUS_OK)
        status =
            picture_decode(reader->pictures, file.bytes, file.byte_count, file.name, picture, err);
    if (status != STATUS_OK)
        return status;
    *label = file.label;
    return shrink(reader, cache->options.rules.resize, picture, err);
}

/* Takes the picture from the file; if it is missing there, decodes it and adds it. */
static enum status get(struct reader *reader, int64_t index, struct picture *picture,
                       int64_t *label, struct err *err)
{
    struct cache *cache = reader->cache;
    struct err failed;
    uint32_t kept_label = 0;
    enum cache_find found = CACHE_ABSENT;
    enum status status;

    if (cache->file.mapped != NULL)
        found = cache_file_find(&cache->file, (uint64_t)index, picture, &kept_label);
    if (found == CACHE_FOUND && kept_label < cache->source.shape.classes) {
        cache->read++;
        *label = kept_label;
        return STATUS_OK;
    }
    if (found != CACHE_ABSENT && cache->damaged++ == 0)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "%s: picture %lld in it is damaged; it, and others like it, are decoded again",
                 cache->file.path, (long long)index);
    status = decode(reader, index, picture, label, err);
    if (status != STATUS_OK)
        return status;
    cache->decoded++;
    if (cache->file.mapped != NULL && cache_file_add(&cache->file, (uint64_t)index, picture,
                                                     (uint32_t)*label, &failed) != STATUS_OK)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "%s; training goes on, pictures that are not in it are decoded in every epoch",
                 failed.text);
    return STATUS_OK;
}

/* -- what the net is given -- */

enum { GROUP = 5, GROUP_BYTES = 16 }; /* pixels in a register, and the register's bytes */

#if defined(__x86_64__)
/* Reverses five pixels in a register of 16 bytes. The byte after them is overwritten by the next
 * group. Returns the number of pixels written. */
__attribute__((target("ssse3"))) static uint32_t mirror_groups(const uint8_t *from, uint32_t size,
                                                               uint8_t *to)
{
    const __m128i order = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0);
    uint32_t i = 0;

    for (; i + GROUP + 1 <= size; i += GROUP) {
        const uint8_t *end = from + (size_t)(size - i) * 3;
        __m128i group = _mm_loadu_si128((const __m128i *)(const void *)(end - GROUP_BYTES));

        _mm_storeu_si128((__m128i *)(void *)(to + (size_t)i * 3), _mm_shuffle_epi8(group, order));
    }
    return i;
}

static bool can_mirror_groups(void)
{
    return __builtin_cpu_supports("ssse3");
}
#else
static uint32_t mirror_groups(const uint8_t *from, uint32_t size, uint8_t *to)
{
    (void)from;
    (void)size;
    (void)to;
    return 0;
}

static bool can_mirror_groups(void)
{
    return false;
}
#endif

static void mirror_row(const uint8_t *from, uint32_t size, uint8_t *to)
{
    for (uint32_t i = can_mirror_groups() ? mirror_groups(from, size, to) : 0; i < size; i++)
        memcpy(to + (size_t)i * 3, from + (size_t)(size - 1 - i) * 3, 3);
}

/* Cuts out a square, mirrored or not, at the speed of memory. */
static void cut(const struct picture *picture, uint32_t x, uint32_t y, uint32_t size, bool mirror,
                uint8_t *image)
{
    const size_t row_bytes = (size_t)size * 3;

    for (uint32_t row = 0; row < size; row++) {
        const uint8_t *from = picture->pixels + ((size_t)(y + row) * picture->width + x) * 3;
        uint8_t *to = image + row * row_bytes;

        if (!mirror) {
            memcpy(to, from, row_bytes);
            continue;
        }
        mirror_row(from, size, to);
    }
}

/* Draws in the order of picture.h: the top, the left, the flip. */
static void cut_random(const struct cache_options *options, const struct picture *picture,
                       uint64_t epoch, uint64_t index, uint8_t *image)
{
    const uint32_t size = options->rules.size;
    struct draw of_epoch = draw_begin(options->seed, epoch);
    struct draw draw = draw_begin(draw_u64(&of_epoch), index);
    uint32_t y = draw_below(&draw, picture->height - size + 1);
    uint32_t x = draw_below(&draw, picture->width - size + 1);
    bool mirror = (double)(draw_u64(&draw) >> 11) * 0x1p-53 < options->rules.flip;

    cut(picture, x, y, size, mirror, image);
}

/* Python's round() of half the difference: a half is rounded to the even number. */
static uint32_t centre(uint32_t side, uint32_t size)
{
    const uint32_t half = (side - size) / 2;

    return (side - size) % 2 == 0 ? half : half + half % 2;
}

/* Whether the picture already has the size that Resize gives it, so that only CenterCrop is
 * left. */
static bool is_resized(const struct picture_rules *rules, const struct picture *picture)
{
    const uint32_t shorter = picture->width < picture->height ? picture->width : picture->height;

    return !rules->is_training && shorter == rules->resize && shorter >= rules->size;
}

static enum status cache_read(struct source *source, void *user, uint64_t epoch, int64_t index,
                              uint8_t *image, int64_t *label, struct err *err)
{
    const struct cache *cache = (const struct cache *)source;
    const struct picture_rules *rules = &cache->options.rules;
    struct reader *reader = user;
    struct picture picture;
    enum status status = get(reader, index, &picture, label, err);

    if (status != STATUS_OK)
        return status;
    if (cache->options.plain_crop && picture.width >= rules->size &&
        picture.height >= rules->size) {
        cut_random(&cache->options, &picture, epoch, (uint64_t)index, image);
        return STATUS_OK;
    }
    if (is_resized(rules, &picture)) {
        cut(&picture, centre(picture.width, rules->size), centre(picture.height, rules->size),
            rules->size, false, image);
        return STATUS_OK;
    }
    return picture_crop(reader->pictures, &picture, rules, cache->options.seed, epoch,
                        (uint64_t)index, image, err);
}

/* -- opening -- */

/* Estimates the bytes of all pixels from some of the pictures; 0: not known. */
static uint64_t foretell(struct cache *cache)
{
    struct reader *reader;
    void *made = NULL;
    uint64_t bytes = 0, probed = 0, step = cache->source.count / PROBES + 1;

    if (reader_new(&cache->source, &made, NULL) != STATUS_OK)
        return 0;
    reader = made;
    for (uint64_t i = 0; i < cache->source.count; i += step) {
        struct picture picture;
        int64_t label;

        if (decode(reader, (int64_t)i, &picture, &label, NULL) != STATUS_OK)
            continue;
        bytes += (uint64_t)picture.width * picture.height * 3;
        probed++;
    }
    reader_free(reader);
    return probed > 0 ? bytes / probed * cache->source.count : 0;
}

/* Caches are in front of folders and shards, which know it. */
static int64_t cache_label(const struct source *source, int64_t index)
{
    const struct source *from = ((const struct cache *)source)->from;

    return from->ops->label(from, index);
}

static void cache_close(struct source *source)
{
    struct cache *cache = (struct cache *)source;

    cache_file_close(&cache->file);
    source_free(&cache->from);
    free(cache);
}

static const struct source_ops cache_ops = {
    .reader_new = reader_new,
    .reader_free = reader_free,
    .read = cache_read,
    .close = cache_close,
    .label = cache_label,
};

static enum status open_file(struct cache *cache, const char *path, struct err *err)
{
    const struct cache_options *options = &cache->options;
    const struct cache_key key = {cache->from->hash, cache->from->count, options->rules.resize};
    const bool is_new = options->rebuild || !cache_file_is_there(path);

    return cache_file_open(&cache->file, path, &key, is_new ? foretell(cache) : 0, options->job,
                           options->rebuild, err);
}

enum status cache_open(struct source **out, struct source *from, const char *path,
                       const struct cache_options *options, struct err *err)
{
    struct cache *cache = calloc(1, sizeof *cache);
    struct err failed = {.text = ""};
    enum status status;

    assert(from->ops->read_file != NULL && from->ops->label != NULL && options->rules.resize > 0);
    if (cache == NULL) {
        source_free(&from);
        return err_set(err, STATUS_MEMORY, 0, "no memory for a cache");
    }
    cache->source = *from;
    cache->source.ops = &cache_ops;
    cache->from = from;
    cache->options = *options;
    status = path != NULL ? open_file(cache, path, &failed) : STATUS_OK;
    if (status == STATUS_IO || status == STATUS_TOO_BIG) {
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "%s; training goes on without a cache", failed.text);
        cache_file_close(&cache->file);
        status = STATUS_OK;
    }
    if (status != STATUS_OK) {
        if (err != NULL)
            *err = failed;
        cache_close(&cache->source);
        return status;
    }
    *out = &cache->source;
    return STATUS_OK;
}

struct cache_counts cache_counts(const struct source *source)
{
    const struct cache *cache = (const struct cache *)source;

    assert(source->ops == &cache_ops);
    return (struct cache_counts){cache->read, cache->decoded, cache->damaged,
                                 cache->file.is_building};
}
