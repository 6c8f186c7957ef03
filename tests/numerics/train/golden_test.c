/* ddp-worker against PyTorch on real MNIST with --delay-allreduce, and on the built-in digits. The
 * usual way, without that option, is compared in tests/integration/golden. */
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/numerics/train/gang.h"
#include "tests/unit/worker/data/golden.h"

static const double LOSS_TOLERANCE = 1e-4;

static const char *mnist(void)
{
    const char *dir = test_shared("data/mnist");

    if (dir == NULL)
        SKIP("MNIST (../shared/data/mnist) is not here");
    return dir;
}

TEST(four_ranks_delayed_reduce)
{
    cJSON *golden = golden_read("convnet-mnist-4ranks.json");
    const cJSON *losses = cJSON_GetArrayItem(cJSON_GetObjectItem(golden, "losses"), 0);
    char args[2048];
    double loss = 0;
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

    CHECK_EQ(gang_run(1, "-b 100 --lr 0.01 --momentum 0.9 --max-steps 450"), 0);
    at = strstr(gang_output(), "Val: Acc@1 ");
    CHECK(at != NULL && sscanf(at, "Val: Acc@1 %lf", &top1) == 1); /* NOLINT(cert-err34-c) */
    (void)printf("# %.2f %% of the drawn digits after 450 steps\n", top1);
    CHECK(top1 > 95);
    CHECK_EQ(gang_run(1, "-e"), 0);
    at = strstr(gang_output(), "Val: Acc@1 ");
    CHECK(at != NULL && sscanf(at, "Val: Acc@1 %lf", &top1) == 1); /* NOLINT(cert-err34-c) */
    CHECK_NEAR(top1, 10, 5);                                       /* untrained */
}

TEST_MAIN
