/* --best: the checkpoint with the best validation is kept, is evaluated to the value that it is kept for, and
 * survives a resume. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/numerics/train/gang.h"
#include "tests/numerics/train/small_data.h"
#include "worker/checkpoint/checkpoint.h"

static int run(uint32_t world, const char *extra)
{
    char args[2048];

    (void)snprintf(
        args, sizeof args,
        "-b 16 --momentum 0.9 --seed 5 --checkpoint-keep 1 --checkpoint-dir %s/a %s %s/data",
        test_dir(), extra, test_dir());
    return gang_run(world, args);
}

static struct checkpoint_best best(void)
{
    struct checkpoint_best found;
    struct err err;
    char path[512];

    (void)snprintf(path, sizeof path, "%s/a", test_dir());
    if (checkpoint_best_read(path, &found, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return found;
}

/* What stands behind the last `word` in rank 0's output, and the greatest of all. */
static double last_number(const char *word, double *greatest)
{
    const char *at = gang_output(), *last = NULL;

    *greatest = -INFINITY;
    while ((at = strstr(at, word)) != NULL) {
        last = at++;
        *greatest = fmax(*greatest, strtod(last + strlen(word), NULL));
    }
    if (last == NULL)
        FAIL("no %s in %s", word, gang_output());
    return strtod(last + strlen(word), NULL);
}

/* The first epochs learn, the others, at an absurd rate, unlearn. */
TEST(the_best_stays_while_training_gets_worse)
{
    struct checkpoint_best kept;
    double greatest;
    char line[64];

    small_data_digits(250, 100);
    CHECK_EQ(run(1, "--epochs 4 --lr 0.01"), 0);
    kept = best();
    CHECK_STR(kept.metric, "val_acc1");
    (void)last_number("Val: Acc@1 ", &greatest);
    CHECK_NEAR(kept.value, greatest, 0.005);
    CHECK(kept.value > 20);
    CHECK_EQ(run(2, "--epochs 7 --lr 1 --resume auto"), 0);
    CHECK(last_number("Val: Acc@1 ", &greatest) < kept.value);
    CHECK_EQ(best().step, kept.step);
    CHECK_EQ(run(1, "-e --resume best"), 0);
    CHECK_NEAR(last_number("Val: Acc@1 ", &greatest), kept.value, 0.005);
    CHECK_EQ(run(1, "--epochs 5 --lr 0.01 --resume best"), 0); /* from there anew */
    (void)snprintf(line, sizeof line, "resumed at step %u ", kept.step);
    CHECK(strstr(gang_output(), line) != NULL);
    CHECK(best().value >= kept.value);
}

TEST(another_metric_starts_anew)
{
    double greatest;

    small_data_digits(250, 100);
    CHECK_EQ(run(1, "--epochs 1 --lr 0.05 --best none"), 0);
    CHECK_EQ(run(1, "-e --resume best"), 1);
    CHECK(strstr(gang_output(), "--resume best: ") != NULL);
    CHECK_EQ(run(1, "--epochs 2 --lr 0.05 --resume auto"), 0);
    CHECK_STR(best().metric, "val_acc1");
    CHECK_EQ(run(1, "--epochs 3 --lr 0.05 --resume auto --best val_loss"), 0);
    CHECK(strstr(gang_output(), "is that by val_acc1") != NULL);
    CHECK_STR(best().metric, "val_loss");
    CHECK_NEAR(best().value, last_number(" Loss ", &greatest), 0.0001);
}

TEST_MAIN
