/* How many images a second one thread has from a cache of decoded pictures (--cache).
 * usage: bench_cache FOLDER CACHE_FILE [SIZE]
 *
 * FOLDER has a folder of pictures for each class; the file is made anew. Each way is measured over
 * whole passes, the first of which, with the checksums, is measured for itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/io/mono.h"
#include "worker/data/cache/cache.h"
#include "worker/data/folder.h"

enum { SIZE = 224, SECONDS = 3 };

static const struct way {
    const char *name;
    bool is_training, plain_crop;
} ways[] = {
    {"random crop, no resampling (--augment crop)", false, true},
    {"centre crop (validation, --augment none)", false, false},
    {"random resized crop (--augment imagenet)", true, false},
};

static void fail(const struct err *err)
{
    (void)fprintf(stderr, "bench_cache: %s\n", err->text);
    exit(1);
}

static struct source *open_cache(const char *folder, const char *path, uint32_t size,
                                 const struct way *way, bool rebuild)
{
    struct folder_options options = {.allow_empty = true};
    struct cache_options how = {.plain_crop = way->plain_crop, .rebuild = rebuild};
    struct source *source, *cache;
    struct err err = {.text = ""};

    picture_rules_set(&options.rules, size, way->is_training);
    how.rules = options.rules;
    if (folder_open(&source, folder, &options, &err) != STATUS_OK ||
        cache_open(&cache, source, path, &how, &err) != STATUS_OK)
        fail(&err);
    return cache;
}

/* Of this thread, so that others on the machine count for less. */
static uint64_t thread_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* One pass over all pictures; returns microseconds. */
static uint64_t pass(struct source *cache, void *reader, uint64_t epoch, uint8_t *image,
                     uint64_t *sum)
{
    const uint64_t begin = mono_us();
    struct err err = {.text = ""};

    for (size_t i = 0; i < cache->count; i++) {
        int64_t label;

        if (cache->ops->read(cache, reader, epoch, (int64_t)i, image, &label, &err) != STATUS_OK)
            fail(&err);
        *sum += image[i % 1000];
    }
    return mono_us() - begin;
}

/* Fills the file, or reads it for SECONDS. */
static void measure(const char *folder, const char *path, uint32_t size, const struct way *way,
                    bool is_filling)
{
    struct source *cache = open_cache(folder, path, size, way, is_filling);
    uint8_t *image = malloc((size_t)size * size * 3);
    uint64_t first_us, us = 0, cpu_us, images = 0, sum = 0, epoch = 1;
    struct err err = {.text = ""};
    void *reader;

    if (image == NULL || source_reader_new(cache, &reader, &err) != STATUS_OK)
        fail(&err);
    cpu_us = thread_us();
    first_us = pass(cache, reader, 0, image, &sum);
    if (is_filling) {
        (void)printf("decoding and filling: %.0f images/s, %.0f a second of its CPU\n",
                     (double)cache->count * 1e6 / (double)first_us,
                     (double)cache->count * 1e6 / (double)(thread_us() - cpu_us));
    } else {
        cpu_us = thread_us();
        for (; us < SECONDS * 1000000U; images += cache->count)
            us += pass(cache, reader, epoch++, image, &sum);
        cpu_us = thread_us() - cpu_us;
        (void)printf("%-46s %7.0f images/s, %7.0f a second of its CPU; first pass, with "
                     "checksums, %7.0f (%llu)\n",
                     way->name, (double)images * 1e6 / (double)us,
                     (double)images * 1e6 / (double)cpu_us,
                     (double)cache->count * 1e6 / (double)first_us, (unsigned long long)sum);
    }
    source_reader_free(cache, &reader);
    source_free(&cache);
    free(image);
}

/* How far a crop of the kept picture is from one of the file's own, over all pictures. */
static void compare(const char *folder, const char *path, uint32_t size, const struct way *way)
{
    const size_t image_bytes = (size_t)size * size * 3;
    struct source *cache = open_cache(folder, path, size, way, false), *direct;
    struct folder_options options = {.allow_empty = true};
    uint8_t *images = malloc(2 * image_bytes);
    void *readers[2];
    uint64_t sum = 0;
    int worst = 0;
    struct err err = {.text = ""};

    picture_rules_set(&options.rules, size, way->is_training);
    if (images == NULL || folder_open(&direct, folder, &options, &err) != STATUS_OK ||
        source_reader_new(cache, &readers[0], &err) != STATUS_OK ||
        source_reader_new(direct, &readers[1], &err) != STATUS_OK)
        fail(&err);
    for (size_t i = 0; i < cache->count; i++) {
        int64_t label;

        if (cache->ops->read(cache, readers[0], 0, (int64_t)i, images, &label, &err) != STATUS_OK ||
            direct->ops->read(direct, readers[1], 0, (int64_t)i, images + image_bytes, &label,
                              &err) != STATUS_OK)
            fail(&err);
        for (size_t at = 0; at < image_bytes; at++) {
            const int apart = abs(images[at] - images[image_bytes + at]);

            sum += (uint64_t)apart;
            worst = apart > worst ? apart : worst;
        }
    }
    (void)printf("%-46s mean difference from the file's own %.3f of 255, worst %d\n", way->name,
                 (double)sum / (double)(image_bytes * cache->count), worst);
    source_reader_free(cache, &readers[0]);
    source_reader_free(direct, &readers[1]);
    source_free(&cache);
    source_free(&direct);
    free(images);
}

int main(int argc, char **argv)
{
    const uint32_t size = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : SIZE;

    if (argc < 3 || size == 0 || size > PICTURE_SIZE_MAX) {
        (void)fprintf(stderr, "usage: %s FOLDER CACHE_FILE [SIZE]\n", argv[0]);
        return 2;
    }
    measure(argv[1], argv[2], size, &ways[0], true);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        measure(argv[1], argv[2], size, &ways[i], false);
    for (size_t i = 1; i < sizeof ways / sizeof ways[0]; i++)
        compare(argv[1], argv[2], size, &ways[i]);
    return 0;
}
