/* Random crops depend only on (seed, epoch, image): the same bytes whichever rank and thread reads
 * an image. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/made_picture.h"
#include "tests/lib/test.h"
#include "worker/data/folder.h"
#include "worker/data/loader.h"
#include "worker/data/sampler.h"

enum { IMAGES = 13, SIDE = 16, BYTES = SIDE * SIDE * 3, BATCH = 4 };

static void make_pictures(const char *dir)
{
    char path[512];

    CHECK(snprintf(path, sizeof path, "%s/only", dir) < (int)sizeof path);
    CHECK_EQ(mkdir(path, 0700), 0);
    for (uint32_t i = 0; i < IMAGES; i++) {
        const struct made_picture picture = {
            .width = 40 + 3 * i, .height = 33, .components = 3, .h = 2, .v = 2};
        size_t byte_count;
        uint8_t *bytes = made_jpeg(&picture, &byte_count);
        FILE *file;

        CHECK(snprintf(path, sizeof path, "%s/only/%02u.jpg", dir, i) < (int)sizeof path);
        file = fopen(path, "wbe");
        CHECK(file != NULL && fwrite(bytes, 1, byte_count, file) == byte_count);
        CHECK_EQ(fclose(file), 0);
        free(bytes);
    }
}

/* Writes the images that `rank` of `world` sees in `epoch` to all[IMAGES][BYTES]; seen[i] is increased. */
static void read_rank(struct source *source, uint32_t rank, uint32_t world, uint32_t threads,
                      uint64_t epoch, uint8_t *all, uint32_t *seen)
{
    const struct sampler_options sampling = {
        .image_count = IMAGES, .rank = rank, .world = world, .seed = 5, .shuffle = true};
    const struct loader_options loading = {
        .batch_max = BATCH, .threads = threads, .unreadable = LOADER_FAILS};
    struct sampler sampler;
    struct loader *loader;
    struct loader_batch batch;
    struct err err;
    int64_t indices[IMAGES] = {0};
    size_t at = 0;

    CHECK_EQ(sampler_init(&sampler, &sampling, &err), STATUS_OK);
    sampler_set_epoch(&sampler, epoch);
    CHECK(sampler.count <= IMAGES);
    for (size_t i = 0; i < sampler.count; i++)
        indices[i] = sampler_index(&sampler, i);
    CHECK_EQ(loader_new(&loader, source, &loading, &err), STATUS_OK);
    loader_begin(loader, epoch, indices, sampler.count);
    do {
        CHECK_EQ(loader_next(loader, &batch, &err), STATUS_OK);
        CHECK(at + batch.n <= sampler.count);
        for (uint32_t i = 0; i < batch.n; i++, at++) {
            memcpy(all + (size_t)indices[at] * BYTES, batch.images + (size_t)i * BYTES, BYTES);
            seen[indices[at]]++;
        }
    } while (batch.n > 0);
    CHECK_EQ(at, sampler.count);
    loader_free(&loader);
    sampler_close(&sampler);
}

static void read_world(struct source *source, uint32_t world, uint32_t threads, uint64_t epoch,
                       uint8_t *all)
{
    uint32_t seen[IMAGES] = {0};

    for (uint32_t rank = 0; rank < world; rank++)
        read_rank(source, rank, world, threads, epoch, all, seen);
    for (uint32_t i = 0; i < IMAGES; i++)
        CHECK(seen[i] >= 1);
}

TEST(ranks_and_threads_change_no_crop)
{
    static uint8_t first[2][IMAGES * BYTES], all[IMAGES * BYTES];
    struct folder_options options = {.seed = 3};
    struct source *source;
    struct err err;
    uint32_t moved = 0;

    make_pictures(test_dir());
    picture_rules_set(&options.rules, SIDE, true);
    CHECK_EQ(folder_open(&source, test_dir(), &options, &err), STATUS_OK);
    CHECK_EQ(source->count, IMAGES);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        read_world(source, 1, 0, epoch, first[epoch]);
        for (uint32_t world = 1; world <= 5; world++)
            for (uint32_t threads = 0; threads <= 3; threads++) {
                memset(all, 0, sizeof all);
                read_world(source, world, threads, epoch, all);
                CHECK_EQ(memcmp(all, first[epoch], sizeof all), 0);
            }
    }
    for (uint32_t i = 0; i < IMAGES; i++)
        moved += memcmp(first[0] + i * BYTES, first[1] + i * BYTES, BYTES) != 0;
    CHECK_EQ(moved, IMAGES); /* another epoch has other crops */
    source_free(&source);
}

TEST_MAIN
