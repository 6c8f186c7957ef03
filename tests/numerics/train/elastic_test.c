/* Training that goes on with another number of ranks, or another batch, sees each image once an epoch and
 * ends where it should. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/numerics/train/gang.h"
#include "tests/numerics/train/small_data.h"

enum { IMAGES = 250, EPOCHS = 3 };

#define OPTIONS "-b 4 --lr 0.01 --momentum 0.9 -p 1 --checkpoint-keep 100"

/* With the checkpoints in the folder `name`. */
static void train(const char *name, uint32_t world, const char *extra)
{
    char args[2048];

    (void)snprintf(args, sizeof args,
                   OPTIONS
                   " --checkpoint-dir %s/%s --resume auto --sample-log %s/%%r.txt %s %s/data",
                   test_dir(), name, test_dir(), extra, test_dir());
    if (gang_run(world, args) != 0)
        FAIL("%u ranks, %s: %s", world, extra, gang_output());
}

/* Adds the images of a log, by epoch. Its rank has seen them in all of its lives. */
static void count_images(uint32_t rank, uint32_t seen[EPOCHS][IMAGES])
{
    char path[512], *line = NULL;
    size_t room = 0;
    FILE *log;

    (void)snprintf(path, sizeof path, "%s/%u.txt", test_dir(), rank);
    log = fopen(path, "r");
    CHECK(log != NULL);
    while (getline(&line, &room, log) > 0) {
        char *at = line;
        const unsigned long epoch = strtoul(at, &at, 10);

        CHECK(epoch >= 1 && epoch <= EPOCHS);
        (void)strtoul(at, &at, 10); /* the step */
        for (char *next = at;; at = next) {
            const unsigned long image = strtoul(at, &next, 10);

            if (next == at)
                break;
            CHECK(image < IMAGES);
            seen[epoch - 1][image]++;
        }
    }
    free(line);
    CHECK_EQ(fclose(log), 0);
}

/* `padded`: images that are seen twice, to fill the last step of all ranks. */
static void check_epoch(const uint32_t seen[IMAGES], uint32_t padded)
{
    uint32_t twice = 0;

    for (uint32_t i = 0; i < IMAGES; i++) {
        if (seen[i] < 1 || seen[i] > 2)
            FAIL("image %u was seen %u times", i, seen[i]);
        twice += seen[i] - 1;
    }
    CHECK_EQ(twice, padded);
}

/* Epoch 1: 4 ranks take 3 steps (48 images), 2 take 5 (40), and 3 share the other 162: 54 each, 14 steps of up to 4.
 * Epoch 2: 84 each, 21 steps, of which they do 2; then 2 ranks with other batches (3 x 2 images) share
 * 226: 113 each, 19 steps. Epoch 3: 125 each, 21 steps. */
TEST(each_image_is_seen_once_an_epoch)
{
    uint32_t seen[EPOCHS][IMAGES] = {0};

    small_data_digits(IMAGES, 25);
    train("a", 4, "--epochs 3 --max-steps 3");
    train("a", 2, "--epochs 3 --max-steps 8");
    CHECK(strstr(gang_output(), "the checkpoint is of 4 ranks with batches of 4 x 1, now there are "
                                "2 with 4 x 1: a step has 8 images instead of 16") != NULL);
    train("a", 3, "--epochs 3 --max-steps 24");
    CHECK(strstr(gang_output(), "Epoch [1/3], Step [22/22]") != NULL);
    train("a", 3, "--epochs 3 --max-steps 24"); /* it is there already */
    train("a", 2, "--epochs 3 -b 3 --accumulation-steps 2");
    CHECK(strstr(gang_output(), "Epoch [2/3], Step [21/21]") != NULL);
    CHECK(strstr(gang_output(), "Epoch [3/3], Step [21/21]") != NULL);
    for (uint32_t rank = 0; rank < 4; rank++)
        count_images(rank, seen);
    check_epoch(seen[0], 0);
    check_epoch(seen[1], 0);
    check_epoch(seen[2], 0);
}

/* OneCycle ends with the training: at the last step the rate is within one step of its end, as in an
 * undisturbed run. */
static double last_rate(void)
{
    const char *at = gang_output(), *last = NULL;

    while ((at = strstr(at, ", lr ")) != NULL)
        last = at++;
    CHECK(last != NULL);
    return strtod(last + 5, NULL);
}

/* 4 ranks, then 2, then 4 again: the rate is for the images of a step at first. */
TEST(the_rate_follows_the_ranks_by_its_rule)
{
    small_data_digits(IMAGES, 25);
    train("keep", 4, "--epochs 1 --max-steps 2");
    train("keep", 2, "--epochs 1 --max-steps 4");
    CHECK_NEAR(last_rate(), 0.01, 1e-9);
    train("linear", 4, "--epochs 1 --max-steps 2 --elastic-lr linear");
    CHECK_NEAR(last_rate(), 0.01, 1e-9);
    train("linear", 2, "--epochs 1 --max-steps 4 --elastic-lr linear");
    CHECK_NEAR(last_rate(), 0.005, 1e-9);
    train("linear", 1, "--epochs 1 --max-steps 6 --elastic-lr linear");
    CHECK_NEAR(last_rate(), 0.0025, 1e-9);
    train("linear", 4, "--epochs 1 --max-steps 8 --elastic-lr linear");
    CHECK_NEAR(last_rate(), 0.01, 1e-9);
    train("sqrt", 4, "--epochs 1 --max-steps 2 --elastic-lr sqrt");
    train("sqrt", 1, "--epochs 1 --max-steps 4 --elastic-lr sqrt");
    CHECK_NEAR(last_rate(), 0.005, 1e-9);
}

TEST(a_cycle_ends_with_the_training)
{
    double whole;

    small_data_digits(IMAGES, 25);
    train("whole", 2, "--epochs 1 --lr-schedule onecycle --lr 0.1");
    whole = last_rate();
    train("cut", 4, "--epochs 1 --lr-schedule onecycle --lr 0.1 --max-steps 6");
    train("cut", 2, "--epochs 1 --lr-schedule onecycle --lr 0.1");
    CHECK_NEAR(last_rate(), whole, 1e-9);
}

/* With more epochs than it began with, a schedule that goes over all epochs keeps its rates, and then its last: `end`,
 * 0: that of the last step. */
static void check_more_epochs(const char *name, const char *schedule, double end)
{
    double next, last;
    char args[128], other[32];

    (void)snprintf(other, sizeof other, "%s-whole", name);
    (void)snprintf(args, sizeof args, "--epochs 2 --lr 0.1 --max-steps 70 %s", schedule);
    train(other, 1, args);
    next = last_rate();
    (void)snprintf(args, sizeof args, "--epochs 2 --lr 0.1 %s", schedule);
    train(other, 1, args);
    last = last_rate();
    (void)snprintf(args, sizeof args, "--epochs 2 --lr 0.1 --max-steps 66 %s", schedule);
    train(name, 1, args);
    (void)snprintf(args, sizeof args, "--epochs 4 --lr 0.1 --max-steps 70 %s", schedule);
    train(name, 1, args);
    CHECK(strstr(gang_output(), "goes over the 2 epochs with which it began") != NULL);
    CHECK_NEAR(last_rate(), next, 1e-9);
    (void)snprintf(args, sizeof args, "--epochs 4 --lr 0.1 --max-steps 200 %s", schedule);
    train(name, 1, args);
    CHECK_NEAR(last_rate(), end > 0 ? end : last, 1e-9);
}

TEST(more_epochs_make_no_rate_jump)
{
    small_data_digits(IMAGES, 25);
    check_more_epochs("cycle", "--lr-schedule onecycle", 0);
    check_more_epochs("cosine", "--lr-schedule cosine --min-lr 0.01", 0.01);
}

TEST_MAIN
