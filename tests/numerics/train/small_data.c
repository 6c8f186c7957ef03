#include "tests/numerics/train/small_data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/lib/test.h"
#include "worker/data/digits.h"
#include "worker/data/rng.h"

enum { MAGIC_IMAGES = 0x803, MAGIC_LABELS = 0x801 };

/* IDX stores its numbers with the most significant byte first. */
static void put_u32(FILE *file, uint32_t value)
{
    const uint8_t bytes[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                              (uint8_t)value};

    CHECK_EQ(fwrite(bytes, 1, sizeof bytes, file), sizeof bytes);
}

static FILE *open_file(const char *dir, const char *prefix, const char *kind)
{
    char path[512];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/%s-%s-ubyte", dir, prefix, kind);
    file = fopen(path, "wbe");
    CHECK(file != NULL);
    return file;
}

void small_data_write(const char *dir, const char *prefix, const uint8_t *pixels,
                      const uint8_t *labels, uint32_t count)
{
    const size_t pixel_count = (size_t)count * SMALL_DATA_PIXELS;
    FILE *images = open_file(dir, prefix, "images-idx3"), *kinds;

    put_u32(images, MAGIC_IMAGES);
    put_u32(images, count);
    put_u32(images, SMALL_DATA_SIDE);
    put_u32(images, SMALL_DATA_SIDE);
    CHECK_EQ(fwrite(pixels, 1, pixel_count, images), pixel_count);
    CHECK_EQ(fclose(images), 0);
    kinds = open_file(dir, prefix, "labels-idx1");
    put_u32(kinds, MAGIC_LABELS);
    put_u32(kinds, count);
    CHECK_EQ(fwrite(labels, 1, count, kinds), count);
    CHECK_EQ(fclose(kinds), 0);
}

static void draw_digit(uint64_t seed, uint32_t index, uint8_t *pixels, uint8_t *label)
{
    static const struct dataset_shape shape = {1, SMALL_DATA_SIDE, SMALL_DATA_SIDE, DIGITS_CLASSES};
    uint16_t kind;

    digits_draw(seed, index, &shape, pixels, &kind);
    *label = (uint8_t)kind;
}

static void draw_noise(uint64_t seed, uint32_t index, uint8_t *pixels, uint8_t *label)
{
    struct rng rng;

    rng_seed(&rng, seed << 32 | index);
    for (size_t i = 0; i < SMALL_DATA_PIXELS; i++)
        pixels[i] = (uint8_t)rng_u32(&rng);
    *label = (uint8_t)(rng_u32(&rng) % DIGITS_CLASSES);
}

typedef void draw_image(uint64_t seed, uint32_t index, uint8_t *pixels, uint8_t *label);

static void write_set(draw_image *draw, const char *prefix, uint64_t seed, uint32_t count)
{
    uint8_t *pixels = calloc(count, SMALL_DATA_PIXELS), *labels = calloc(count, 1);
    char dir[512];

    CHECK(pixels != NULL && labels != NULL);
    for (uint32_t i = 0; i < count; i++)
        draw(seed, i, pixels + (size_t)i * SMALL_DATA_PIXELS, labels + i);
    (void)snprintf(dir, sizeof dir, "%s/data", test_dir());
    if (mkdir(dir, 0700) != 0)
        CHECK_EQ(errno, EEXIST);
    small_data_write(dir, prefix, pixels, labels, count);
    free(pixels);
    free(labels);
}

void small_data_digits(uint32_t train_count, uint32_t validation_count)
{
    write_set(draw_digit, "train", 1, train_count);
    write_set(draw_digit, "t10k", 2, validation_count);
}

void small_data_noise(uint32_t train_count, uint32_t validation_count)
{
    write_set(draw_noise, "train", 1, train_count);
    write_set(draw_noise, "t10k", 2, validation_count);
}
