/* Ranks with other options, data or models than rank 0's are named before anything is trained. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/test.h"
#include "tests/numerics/train/gang.h"
#include "tests/numerics/train/small_data.h"

#define OPTIONS "--device cpu -b 8 --max-steps 1 --seed 3 "

/* Two ranks; the second has `more`. */
static int run(const char *data, const char *more)
{
    char args[1024];
    int code;

    (void)snprintf(args, sizeof args, OPTIONS "%s", data);
    gang_last_args = more;
    code = gang_run(2, args);
    gang_last_args = NULL;
    return code;
}

static void check_refused(const char *data, const char *more, const char *expected)
{
    if (run(data, more) != 1 || strstr(gang_output(), expected) == NULL)
        FAIL("expected \"%s\", got: %s", expected, gang_output());
}

TEST(options_that_differ_are_named)
{
    check_refused("", "--lr 0.5",
                  "--lr is 0.5 on rank 1, but 0.01 on rank 0: all ranks need the same");
    check_refused("", "--seed 4", "--seed is 4 on rank 1, but 3 on rank 0");
    check_refused("", "-b 9", "--batch-size is 9 on rank 1, but 8 on rank 0");
    check_refused("", "-a toynet", "--arch is toynet on rank 1, but convnet on rank 0");
    check_refused("", "--checkpoint-dir /tmp/nothing",
                  "--checkpoint-dir is a value on rank 1, but none on rank 0");
    check_refused("", "--dummy", "--dummy is on on rank 1, but off on rank 0");
}

TEST(what_a_rank_may_have_for_itself)
{
    char more[512], data[512];

    small_data_digits(64, 16);
    (void)snprintf(more, sizeof more, "-j 0 -p 7 --loss-log %s/log --take-over", test_dir());
    (void)snprintf(data, sizeof data, "%s/data", test_dir());
    CHECK_EQ(run(data, more), 0);
}

static void write_data(const char *name, uint32_t count, uint8_t label)
{
    static uint8_t pixels[64][SMALL_DATA_PIXELS], labels[64];
    char dir[512];

    (void)snprintf(dir, sizeof dir, "%s/%s", test_dir(), name);
    if (mkdir(dir, 0700) != 0)
        CHECK_EQ(errno, EEXIST);
    for (uint32_t i = 0; i < 64; i++)
        labels[i] = (uint8_t)(i % 10);
    small_data_write(dir, "t10k", pixels[0], labels, 64);
    labels[7] = label;
    small_data_write(dir, "train", pixels[0], labels, count);
}

/* The folder may be another on each node, its content not. */
TEST(data_that_differs_is_named)
{
    char data[600];

    (void)snprintf(data, sizeof data, "%s/data-%%R", test_dir());
    write_data("data-0", 64, 7);
    write_data("data-1", 64, 7);
    CHECK_EQ(run(data, NULL), 0);
    write_data("data-1", 64, 8);
    check_refused(data, NULL, "the content (hash) of the training set is ");
    write_data("data-1", 63, 7);
    check_refused(data, NULL, "the number of training images is 63 on rank 1, but 64 on rank 0");
}

TEST_MAIN
