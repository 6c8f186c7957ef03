/* ddp-worker in mixed precision, alone and with real peers: resume to the bit at every level, an
 * overflow that every rank skips, the stop after too many, accuracy with four ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/numerics/train/gang.h"
#include "tests/numerics/train/small_data.h"

static const char *const levels[] = {
    "--opt-level O1",
    "--opt-level O2",
    "--opt-level O2 --keep-batchnorm-fp32 False",
    "--opt-level O3",
    "--opt-level O2 --low-type bf16",
};
#define LEVELS (sizeof levels / sizeof levels[0])

#define OPTIONS "-b 16 --lr 0.05 --momentum 0.9 --nesterov --wd 1e-4 --seed 5 -p 1 "

static const char *arguments(const char *name, const char *level, const char *extra)
{
    static char args[2048];

    (void)snprintf(args, sizeof args, OPTIONS "--checkpoint-dir %s/%s %s %s %s/data", test_dir(),
                   name, level, extra, test_dir());
    return args;
}

/* A scale to begin with that is too large for fp16 here: it is halved in the first steps, and a
 * resume continues with what is left of it. */
static void cut_and_resume(uint32_t world)
{
    small_data_digits(256, 16);
    for (size_t i = 0; i < LEVELS; i++) {
        const bool has_scale = strstr(levels[i], "O3") == NULL && strstr(levels[i], "bf16") == NULL;
        char name[32], args[1024];

        (void)snprintf(name, sizeof name, "level-%zu", i);
        (void)snprintf(args, sizeof args, OPTIONS "%s %s %s/data", levels[i],
                       has_scale ? "--init-loss-scale 1e9 --max-loss-scale 1e9" : "", test_dir());
        gang_check_resume(&(struct gang_resume){.name = name,
                                                .world = world,
                                                .args = args,
                                                .end_args = "--max-steps 14",
                                                .cuts = {5},
                                                .end_step = 14});
    }
}

TEST(resume_is_bit_identical_at_every_level)
{
    cut_and_resume(1);
}

TEST(two_ranks_resume_bit_identical)
{
    cut_and_resume(2);
}

/* Every step overflows, before the cut and after it: the count of skipped steps goes on. */
TEST(skips_in_a_row_go_on_after_a_resume)
{
    char args[1024];

    small_data_digits(256, 16);
    (void)snprintf(args, sizeof args, OPTIONS "--opt-level O2 --init-loss-scale 1e30 %s %s/data",
                   "--max-loss-scale 1e30", test_dir());
    gang_check_resume(&(struct gang_resume){.name = "skips",
                                            .world = 1,
                                            .args = args,
                                            .end_args = "--max-steps 6",
                                            .cuts = {3},
                                            .end_step = 6});
}

TEST(another_level_does_not_go_on)
{
    small_data_digits(64, 16);
    CHECK_EQ(gang_run(1, arguments("other", levels[1], "--max-steps 2")), 0);
    CHECK_EQ(gang_run(1, arguments("other", levels[3], "--max-steps 4 --resume auto")), 1);
    CHECK(strstr(gang_output(), "it was made with --opt-level O2, now it is O3") != NULL);
}

/* The scale turns every gradient into an infinity: all ranks skip the same steps, and training
 * stops by itself. */
TEST(too_many_overflows_stop_every_rank_and_name_the_place)
{
    static const uint32_t worlds[] = {1, 4};

    small_data_digits(512, 16);
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

TEST(graph_of_an_evaluation_is_printed)
{
    CHECK_EQ(gang_run(1, "--evaluate --print-graph"), 0);
    CHECK(strstr(gang_output(), "-- after buckets: ") != NULL);
    CHECK(strstr(gang_output(), "reduced in a step: 0 bytes in 0 buckets") != NULL);
}

static double accuracy(void)
{
    const char *at = strstr(gang_output(), "Val: Acc@1 ");

    return at != NULL ? strtod(at + strlen("Val: Acc@1 "), NULL) : -1.0;
}

#define ACCURACY_RUN "-b 50 --lr 0.01 --momentum 0.9 --max-steps 200 "

/* On the built-in digits. Measured when this was written: fp32 reaches 95.62, the others 95.60 to
 * 95.65. The rate is one at which training is stable: at 0.05 the loss jumps to 15 in the first
 * steps, and fp32 alone ends anywhere between 70 and 87 after 120 steps, so nothing can be
 * compared there. fp16 under O1 to O3 is compared with PyTorch in net_amp_test.c; here is one of
 * each type, since ranks add up their gradients in it. */
TEST(four_ranks_reach_what_fp32_reaches)
{
    static const char *const half_levels[] = {"--opt-level O3", "--opt-level O2 --low-type bf16"};
    double fp32;

    CHECK_EQ(gang_run(4, ACCURACY_RUN), 0);
    fp32 = accuracy();
    (void)printf("fp32: %.2f\n", fp32);
    CHECK(fp32 > 94.0);
    for (size_t i = 0; i < sizeof half_levels / sizeof half_levels[0]; i++) {
        char args[256];

        (void)snprintf(args, sizeof args, ACCURACY_RUN "%s", half_levels[i]);
        CHECK_EQ(gang_run(4, args), 0);
        (void)printf("%s: %.2f\n", half_levels[i], accuracy());
        CHECK_NEAR(accuracy(), fp32, 1.0);
    }
}

TEST_MAIN
