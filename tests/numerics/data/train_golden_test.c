/* ddp-worker against PyTorch on real MNIST: every loss of epoch 1, and the accuracy of three
 * epochs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/numerics/data/gang.h"
#include "tests/unit/worker/data/golden.h"

static const double LOSS_TOLERANCE = 1e-4, ACCURACY_TOLERANCE = 0.1;

static const char *mnist(void)
{
    const char *dir = test_shared("data/mnist");

    if (dir == NULL)
        SKIP("MNIST (../shared/data/mnist) is not here");
    return dir;
}

/* Every line "epoch step loss" of one rank's log against losses[0][rank]. */
static void check_losses(const cJSON *golden, uint32_t rank)
{
    const cJSON *losses =
        cJSON_GetArrayItem(cJSON_GetArrayItem(cJSON_GetObjectItem(golden, "losses"), 0), (int)rank);
    char path[512];
    double worst = 0;
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/loss-%u.txt", test_dir(), rank);
    file = fopen(path, "r");
    CHECK(file != NULL);
    CHECK(cJSON_GetArraySize(losses) >= 150);
    for (int i = 0; i < cJSON_GetArraySize(losses); i++) {
        unsigned epoch, step;
        double loss, expected = cJSON_GetArrayItem(losses, i)->valuedouble;
        /* our own numbers: NOLINTNEXTLINE(cert-err34-c) */
        int read = fscanf(file, "%u %u %lf", &epoch, &step, &loss);
        if (read != 3)
            FAIL("rank %u has no step %d", rank, i + 1);
        CHECK_EQ(epoch, 1);
        CHECK_EQ(step, i + 1);
        if (!(fabs(loss - expected) <= LOSS_TOLERANCE))
            FAIL("rank %u, step %d: loss %.9f, PyTorch %.6f", rank, i + 1, loss, expected);
        worst = fmax(worst, fabs(loss - expected));
    }
    (void)fclose(file);
    (void)printf("# rank %u: largest difference of a loss %.2g\n", rank, worst);
}

/* "Val: Acc@1 ..." of every epoch against val[epoch]. */
static void check_accuracies(const cJSON *golden, int epochs)
{
    const char *at = gang_output();

    for (int i = 0; i < epochs; i++) {
        const cJSON *expected = cJSON_GetArrayItem(cJSON_GetObjectItem(golden, "val"), i);
        double top1, top5, loss;
        at = strstr(at, "Val: Acc@1 ");
        if (at == NULL)
            FAIL("no validation of epoch %d in:\n%s", i + 1, gang_output());
        /* our own numbers: NOLINTNEXTLINE(cert-err34-c) */
        int read = sscanf(at, "Val: Acc@1 %lf Acc@5 %lf Loss %lf", &top1, &top5, &loss);
        if (read != 3)
            FAIL("no validation of epoch %d in:\n%s", i + 1, gang_output());
        at++;
        CHECK_NEAR(top1, cJSON_GetObjectItem(expected, "acc1")->valuedouble, ACCURACY_TOLERANCE);
        CHECK_NEAR(top5, cJSON_GetObjectItem(expected, "acc5")->valuedouble, ACCURACY_TOLERANCE);
        CHECK_NEAR(loss, cJSON_GetObjectItem(expected, "loss")->valuedouble, 1e-3);
    }
}

static void check_run(const char *name, uint32_t world, int epochs)
{
    cJSON *golden = golden_read(name);
    char args[2048];

    (void)snprintf(args, sizeof args,
                   "-a convnet --epochs %d -b 100 --lr 1e-4 --seed 0 --loss-log %s/loss-%%r.txt %s",
                   epochs, test_dir(), mnist());
    CHECK_EQ(gang_run(world, args), 0);
    for (uint32_t rank = 0; rank < world; rank++)
        check_losses(golden, rank);
    check_accuracies(golden, epochs);
    cJSON_Delete(golden);
}

TEST(one_rank_three_epochs)
{
    check_run("convnet-mnist-1rank.json", 1, 3);
}

TEST(four_ranks_one_epoch)
{
    check_run("convnet-mnist-4ranks.json", 4, 1);
}

TEST(four_ranks_delayed_reduce)
{
    cJSON *golden = golden_read("convnet-mnist-4ranks.json");
    const cJSON *losses = cJSON_GetArrayItem(cJSON_GetObjectItem(golden, "losses"), 0);
    char args[2048];
    double loss;
    unsigned epoch, step;
    FILE *file;

    (void)snprintf(
        args, sizeof args,
        "-b 100 --lr 1e-4 --delay-allreduce --max-steps 12 --loss-log %s/loss-%%r.txt %s",
        test_dir(), mnist());
    CHECK_EQ(gang_run(4, args), 0);
    (void)snprintf(args, sizeof args, "%s/loss-3.txt", test_dir());
    file = fopen(args, "r");
    CHECK(file != NULL);
    for (int i = 0; i < 12; i++) {
        CHECK_EQ(fscanf(file, "%u %u %lf", &epoch, &step, &loss), 3); /* NOLINT(cert-err34-c) */
        CHECK_NEAR(loss, cJSON_GetArrayItem(cJSON_GetArrayItem(losses, 3), i)->valuedouble,
                   LOSS_TOLERANCE);
    }
    (void)fclose(file);
    cJSON_Delete(golden);
}

TEST(digits_are_learnt)
{
    double top1 = 0;
    const char *at;

    CHECK_EQ(gang_run(1, "--epochs 1 -b 100 --lr 0.01 --momentum 0.9"), 0);
    at = strstr(gang_output(), "Val: Acc@1 ");
    CHECK(at != NULL && sscanf(at, "Val: Acc@1 %lf", &top1) == 1); /* NOLINT(cert-err34-c) */
    (void)printf("# %.2f %% of the drawn digits after one epoch\n", top1);
    CHECK(top1 > 95);
    CHECK_EQ(gang_run(1, "-e"), 0);
    at = strstr(gang_output(), "Val: Acc@1 ");
    CHECK(at != NULL && sscanf(at, "Val: Acc@1 %lf", &top1) == 1); /* NOLINT(cert-err34-c) */
    CHECK_NEAR(top1, 10, 5);                                       /* untrained */
}

TEST_MAIN
