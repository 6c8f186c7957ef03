/* The built-in digits: always the same, all ten, not trivial. tests/numerics shows that a net
 * learns them. */
#include "worker/data/digits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/sources.h"
#include "tests/unit/worker/data/golden.h"

static const struct dataset_shape shape = {1, 28, 28, 10};

/* Fixed values: a change of the pictures makes old accuracies and checkpoints incomparable, so it
 * must be intended. */
static const char first_thousand[] =
    "5df2f6a0e7822faf433963ceba02022c3eb806d5e4c50fef873e1833c5aabcf2";

TEST(pictures_are_pinned)
{
    static uint8_t images[1000][785];
    char hex[65];

    for (uint64_t i = 0; i < 1000; i++) {
        uint16_t label;
        digits_draw(1, i, &shape, images[i], &label);
        images[i][784] = (uint8_t)label;
    }
    golden_sha256(images, sizeof images, hex);
    CHECK_STR(hex, first_thousand);
}

TEST(order_of_asking_is_irrelevant)
{
    struct source *forward, *backward;
    static uint8_t image[2][784];
    int64_t label[2];

    CHECK_EQ(digits_new_train(&forward, NULL), STATUS_OK);
    CHECK_EQ(digits_new_train(&backward, NULL), STATUS_OK);
    for (int64_t i = 0; i < 50; i++)
        (void)sources_read(forward, 0, i, image[0]);
    for (int64_t i = 49; i >= 0; i--) {
        label[1] = sources_read(backward, 0, i, image[1]);
        label[0] = sources_read(forward, 0, i, image[0]);
        CHECK_BYTES(image[0], image[1], sizeof image[0]);
        CHECK_EQ(label[0], label[1]);
    }
    source_free(&forward);
    source_free(&backward);
}

TEST(classes_are_even)
{
    static uint8_t image[784];
    uint32_t counts[10] = {0};
    uint16_t label;

    for (uint64_t i = 0; i < 5000; i++) {
        digits_draw(2, i, &shape, image, &label);
        CHECK(label < 10);
        counts[label]++;
    }
    for (int i = 0; i < 10; i++)
        CHECK_NEAR(counts[i], 500, 110); /* five standard deviations */
}

TEST(two_sets_share_no_image)
{
    struct source *train, *validation;
    static uint8_t image[2][784];

    CHECK_EQ(digits_new_train(&train, NULL), STATUS_OK);
    CHECK_EQ(digits_new_validation(&validation, NULL), STATUS_OK);
    CHECK_EQ(train->count, DIGITS_TRAIN_COUNT);
    CHECK_EQ(validation->count, DIGITS_VALIDATION_COUNT);
    for (int64_t i = 0; i < 100; i++) {
        (void)sources_read(train, 0, i, image[0]);
        (void)sources_read(validation, 0, i, image[1]);
        CHECK(memcmp(image[0], image[1], sizeof image[0]) != 0);
    }
    source_free(&train);
    source_free(&validation);
}

/* The simplest classifier, nearest class mean, must not be enough: the set would be too easy to
 * show anything. */
TEST(class_means_are_not_enough)
{
    static double means[10][784];
    static uint8_t image[784];
    uint32_t counts[10] = {0}, right = 0;
    uint16_t label;

    for (uint64_t i = 0; i < 4000; i++) {
        digits_draw(3, i, &shape, image, &label);
        counts[label]++;
        for (int k = 0; k < 784; k++)
            means[label][k] += image[k];
    }
    for (uint64_t i = 4000; i < 5000; i++) {
        double best = INFINITY;
        int guess = -1;
        digits_draw(3, i, &shape, image, &label);
        for (int class = 0; class < 10; class ++) {
            double distance = 0;
            for (int k = 0; k < 784; k++) {
                double d = image[k] - means[class][k] / counts[class];
                distance += d * d;
            }
            if (distance < best) {
                best = distance;
                guess = class;
            }
        }
        right += guess == label;
    }
    CHECK(right > 300 && right < 800); /* there is something to see, and something left to learn */
}

TEST(noise_is_seeded)
{
    static uint8_t a[3 * 5 * 7], b[3 * 5 * 7];
    const struct dataset_shape small = {3, 5, 7, 4};
    uint16_t label_a, label_b;

    dataset_draw_noise(9, 4, &small, a, &label_a);
    dataset_draw_noise(9, 4, &small, b, &label_b);
    CHECK_BYTES(a, b, sizeof a);
    CHECK_EQ(label_a, label_b);
    CHECK(label_a < 4);
    dataset_draw_noise(9, 5, &small, b, &label_b);
    CHECK(memcmp(a, b, sizeof a) != 0);
}

/* Labels are wider than a byte: every class of a large set comes, and only those. */
TEST(all_classes_are_drawn)
{
    const struct dataset_shape one = {1, 1, 1, 1000};
    uint32_t counts[1000] = {0}, empty = 0;
    struct source *set;

    CHECK_EQ(dataset_new_drawn(&set, &one, 20000, dataset_draw_noise, 5, NULL), STATUS_OK);
    for (int64_t i = 0; i < 20000; i++) {
        uint8_t pixel;

        counts[sources_read(set, 0, i, &pixel)]++;
    }
    source_free(&set);
    for (int i = 0; i < 1000; i++)
        empty += counts[i] == 0;
    CHECK_EQ(empty, 0); /* 20 of each on the average */
}

TEST_MAIN
