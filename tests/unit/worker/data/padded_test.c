/* Random crops of padded images: each is a part of the padded image, all of them come, and a sample's is
 * the same whoever reads it. */
#include "worker/data/padded.h"

#include <stdlib.h>
#include <string.h>

#include "common/draw.h"
#include "tests/lib/sources.h"
#include "tests/lib/test.h"
#include "worker/data/dataset.h"

enum { WIDTH = 7, HEIGHT = 5, CHANNELS = 3, COUNT = 3000, PADDING = 2, CROPS = 2 * PADDING + 1 };
enum { BYTES = WIDTH * HEIGHT * CHANNELS };

static const struct dataset_shape shape = {CHANNELS, HEIGHT, WIDTH, 10};

static struct source *make(uint64_t seed)
{
    struct source *inner, *padded;

    CHECK_EQ(dataset_new_drawn(&inner, &shape, COUNT, dataset_draw_noise, 1, NULL), STATUS_OK);
    CHECK_EQ(padded_new(&padded, inner, PADDING, seed, NULL), STATUS_OK);
    return padded;
}

/* The byte of the padded image's crop, as torchvision makes it: pad, crop, flip. */
static uint8_t expect(const uint8_t *image, uint32_t top, uint32_t left, bool flips, uint32_t y,
                      uint32_t x, uint32_t c)
{
    const int64_t row = (int64_t)y + top - PADDING;
    const int64_t column = (int64_t)(flips ? WIDTH - 1 - x : x) + left - PADDING;

    if (row < 0 || row >= HEIGHT || column < 0 || column >= WIDTH)
        return 0;
    return image[(row * WIDTH + column) * CHANNELS + c];
}

static void check_sample(struct source *padded, uint64_t seed, uint64_t epoch, int64_t index,
                         uint32_t counts[2][CROPS][CROPS])
{
    struct draw draw = draw_begin(seed, epoch);
    uint8_t image[BYTES], crop[BYTES];
    uint32_t top, left;
    uint16_t label;
    bool flips;

    draw = draw_begin(draw_u64(&draw), (uint64_t)index);
    top = draw_below(&draw, CROPS);
    left = draw_below(&draw, CROPS);
    flips = draw_between(&draw, 0, 1) < 0.5F;
    counts[flips][top][left]++;
    dataset_draw_noise(1, (uint64_t)index, &shape, image, &label);
    CHECK_EQ(sources_read(padded, epoch, index, crop), label);
    for (uint32_t y = 0; y < HEIGHT; y++)
        for (uint32_t x = 0; x < WIDTH; x++)
            for (uint32_t c = 0; c < CHANNELS; c++)
                CHECK_EQ(crop[(y * WIDTH + x) * CHANNELS + c],
                         expect(image, top, left, flips, y, x, c));
}

TEST(all_crops_come)
{
    uint32_t counts[2][CROPS][CROPS] = {{{0}}};
    struct source *padded = make(8);

    for (int64_t i = 0; i < COUNT; i++)
        check_sample(padded, 8, 4, i, counts);
    for (int flips = 0; flips < 2; flips++)
        for (int top = 0; top < CROPS; top++)
            for (int left = 0; left < CROPS; left++)
                CHECK_NEAR(counts[flips][top][left], COUNT / 50.0, 40);
    source_free(&padded);
}

TEST(seed_and_epoch_change_it)
{
    struct source *one = make(8), *other = make(9);
    uint32_t by_seed = 0, by_epoch = 0;

    for (int64_t i = 0; i < 100; i++) {
        uint8_t a[BYTES], b[BYTES], c[BYTES];

        (void)sources_read(one, 0, i, a);
        (void)sources_read(other, 0, i, b);
        (void)sources_read(one, 1, i, c);
        by_seed += memcmp(a, b, BYTES) != 0;
        by_epoch += memcmp(a, c, BYTES) != 0;
        (void)sources_read(one, 0, i, b);
        CHECK_BYTES(a, b, BYTES);
    }
    CHECK(by_seed > 90 && by_epoch > 90);
    source_free(&one);
    source_free(&other);
}

TEST_MAIN
