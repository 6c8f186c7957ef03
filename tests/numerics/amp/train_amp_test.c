/* ddp-worker in mixed precision, alone and with real peers: resume to the bit at every level, an
 * overflow that every rank skips, the stop after too many, accuracy with four ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/numerics/data/gang.h"

static const char *const levels[] = {
    "--opt-level O1",
    "--opt-level O2",
    "--opt-level O2 --keep-batchnorm-fp32 False",
    "--opt-level O3",
    "--opt-level O2 --low-type bf16",
};
#define LEVELS (sizeof levels / sizeof levels[0])

static const char *arguments(const char *name, const char *level, const char *extra)
{
    static char args[2048];

    (void)snprintf(args, sizeof args,
                   "-b 32 --lr 0.05 --momentum 0.9 --nesterov --wd 1e-4 --seed 5 -p 1 "
                   "--checkpoint-dir %s/%s %s %s",
                   test_dir(), name, level, extra);
    return args;
}

/* A scale to begin with that is too much for fp16 here: it falls in the first steps, and where it
 * stands is resumed. */
static void cut_and_resume(uint32_t world, const char *level, size_t number)
{
    char whole[32], cut[32], words[256];

    (void)snprintf(whole, sizeof whole, "whole-%u-%zu", world, number);
    (void)snprintf(cut, sizeof cut, "cut-%u-%zu", world, number);
    (void)snprintf(words, sizeof words, "%s%s", level,
                   strstr(level, "O3") == NULL && strstr(level, "bf16") == NULL
                       ? " --init-loss-scale 1e9 --max-loss-scale 1e9"
                       : "");
    CHECK_EQ(gang_run(world, arguments(whole, words, "--max-steps 24")), 0);
    CHECK_EQ(gang_run(world, arguments(cut, words, "--max-steps 5")), 0);
    CHECK_EQ(gang_run(world, arguments(cut, words, "--max-steps 24 --resume auto")), 0);
    CHECK(strstr(gang_output(), "resumed at step 5") != NULL);
    gang_check_same(whole, cut, 24);
}

TEST(resume_is_bit_identical_at_every_level)
{
    for (size_t i = 0; i < LEVELS; i++)
        cut_and_resume(1, levels[i], i);
}

TEST(two_ranks_resume_bit_identical)
{
    for (size_t i = 0; i < LEVELS; i++)
        cut_and_resume(2, levels[i], i);
}

TEST(another_level_does_not_go_on)
{
    CHECK_EQ(gang_run(1, arguments("other", levels[1], "--max-steps 2")), 0);
    CHECK_EQ(gang_run(1, arguments("other", levels[3], "--max-steps 4 --resume auto")), 1);
    CHECK(strstr(gang_output(), "it was made with --opt-level O2, now it is O3") != NULL);
}

/* Scaled to infinity: nothing is learnt, every rank says the same, and training stops by itself. */
TEST(too_many_overflows_stop_every_rank_and_name_the_place)
{
    static const uint32_t worlds[] = {1, 2, 4};

    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        CHECK_EQ(gang_run(worlds[i],
                          arguments("stop", levels[1],
                                    "--max-steps 50 --init-loss-scale 1e30 --max-loss-scale 1e30 "
                                    "--max-skipped-steps 4 --resume none")),
                 1);
        CHECK(strstr(gang_output(), "Gradient overflow.  Skipping step, loss scaler 0 reducing "
                                    "loss scale to ") != NULL);
        if (strstr(gang_output(), "4 steps in a row were skipped, the loss scale is ") == NULL ||
            strstr(gang_output(), "the first infinity or NaN is in the gradient of fc.bias") ==
                NULL)
            FAIL("%s", gang_output());
    }
}

TEST(graph_is_printed)
{
    CHECK_EQ(gang_run(1, "--opt-level O2 --print-graph"), 0);
    CHECK(strstr(gang_output(), "-- after amp: 14 layers --") != NULL);
    CHECK(strstr(gang_output(), "weight fp16 (master fp32, gradient fp16) [16x1x5x5]") != NULL);
    CHECK(strstr(gang_output(), "bucket 1: fp16, 57876 bytes:") != NULL);
    CHECK(strstr(gang_output(), "reduced in a step: ") != NULL);
    CHECK(strstr(gang_output(), "Epoch [") == NULL);
}

static double accuracy(void)
{
    const char *at = strstr(gang_output(), "Val: Acc@1 ");

    return at != NULL ? strtod(at + strlen("Val: Acc@1 "), NULL) : -1.0;
}

#define ACCURACY_RUN "-b 50 --lr 0.01 --momentum 0.9 --max-steps 300 "

/* On the built-in digits. Measured when this was written: fp32 reaches 96.39 to 97.02 with seeds 0
 * to 3, and every level 97.00 to 97.05 where fp32 has 97.02 (seed 0). The rate is one at which
 * training is stable: at 0.05 the loss jumps to 15 in the first steps, and fp32 alone ends
 * anywhere between 70 and 87 after 120 steps, so nothing can be compared there. */
TEST(four_ranks_reach_what_fp32_reaches)
{
    double fp32;

    CHECK_EQ(gang_run(4, ACCURACY_RUN), 0);
    fp32 = accuracy();
    (void)printf("fp32: %.2f\n", fp32);
    CHECK(fp32 > 95.0);
    for (size_t i = 0; i < LEVELS; i++) {
        char args[256];

        (void)snprintf(args, sizeof args, ACCURACY_RUN "%s", levels[i]);
        CHECK_EQ(gang_run(4, args), 0);
        (void)printf("%s: %.2f\n", levels[i], accuracy());
        CHECK_NEAR(accuracy(), fp32, 1.0);
    }
}

TEST_MAIN
