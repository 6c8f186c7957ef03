/* The ConvNet at O1, O2 and O3 against PyTorch with explicit rounding: the first 50 losses on real
 * MNIST, and the loss scale at each of them. amp_values.py says how the values were made. */
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/numerics/amp/amp_values.h"
#include "tests/numerics/net/mnist.h"
#include "worker/amp.h"
#include "worker/net.h"
#include "worker/rng.h"

#define BATCH 100U
/* A sum in another order changes the last bit of a rounded value here and there, and training
 * carries that on; fp16 has 11 bits, bf16 8. */
#define TOLERANCE_FP16 5e-3
#define TOLERANCE_BF16 1e-2

static struct net *make_net(const struct amp_case *expected)
{
    const struct amp_request request = {.level = expected->level, .low_type = expected->low_type};
    struct amp amp;
    struct err err = {0};

    if (amp_resolve(&amp, &request, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return mnist_convnet(BATCH, &amp);
}

static double run_case(const struct amp_case *expected, const struct mnist *train, double tolerance)
{
    const struct optim sgd = {.lr = 0.01F, .momentum = 0.9F};
    struct net *net = make_net(expected);
    static float images[BATCH * MNIST_PIXELS];
    static int64_t labels[BATCH], order[MNIST_TRAIN_COUNT];
    struct net_result result;
    double worst = 0.0;
    struct rng rng;

    rng_seed(&rng, 0);
    rng_permute(&rng, order, MNIST_TRAIN_COUNT);
    for (size_t step = 0; step < AMP_STEPS; step++) {
        double off;

        mnist_batch(train, order + step * BATCH, BATCH, images, labels);
        CHECK(net_scaler(net).scale == expected->scales[step]);
        CHECK_EQ(net_forward(net, images, labels, BATCH, true, &result, NULL), STATUS_OK);
        CHECK_EQ(net_backward(net, 1.0F, NULL, NULL, NULL), STATUS_OK);
        net_update(net, &sgd);
        off = result.loss_sum / BATCH - (double)expected->losses[step];
        worst = off > worst ? off : -off > worst ? -off : worst;
        CHECK_NEAR(result.loss_sum / BATCH, expected->losses[step], tolerance);
    }
    net_free(&net);
    return worst;
}

TEST(first_losses_equal_torch_with_rounding)
{
    struct mnist train;

    mnist_read(&train, "train", MNIST_TRAIN_COUNT);
    for (size_t i = 0; i < sizeof amp_cases / sizeof amp_cases[0]; i++) {
        const struct amp_case *expected = &amp_cases[i];
        bool is_bf16 = strcmp(expected->low_type, "bf16") == 0;
        double worst = run_case(expected, &train, is_bf16 ? TOLERANCE_BF16 : TOLERANCE_FP16);

        (void)printf("%s %s: %d losses within %.2e\n", expected->level, expected->low_type,
                     AMP_STEPS, worst);
    }
    mnist_close(&train);
}

TEST_MAIN
