/* The ConvNet at O1, O2 and O3 against PyTorch with explicit rounding: the first 50 losses on real
 * MNIST, and the loss scale at each of them. amp_values.py made the values. */
#include <stdio.h>
#include <string.h>

#include "tests/lib/made_net.h"
#include "tests/lib/test.h"
#include "tests/numerics/amp/amp_values.h"
#include "tests/numerics/net/mnist.h"
#include "worker/net/net.h"

/* A sum in another order changes the last bit of a rounded value here and there, and training
 * carries that on; fp16 has 11 bits, bf16 8. */
#define TOLERANCE_FP16 5e-3
#define TOLERANCE_BF16 1e-2

static void check_level(const struct mnist *train, const struct amp_case *expected,
                        const char *level)
{
    const struct optim sgd = {.lr = 0.01F, .momentum = 0.9F};
    const struct amp_request request = {.level = level, .half_type = expected->half_type};
    const bool is_bf16 = strcmp(expected->half_type, "bf16") == 0;
    const struct amp amp = made_amp(&request);
    struct net *net = mnist_convnet(&amp);
    const double worst = mnist_train(net, train, &sgd, expected->losses, expected->scale, AMP_STEPS,
                                     is_bf16 ? TOLERANCE_BF16 : TOLERANCE_FP16);

    net_free(&net);
    (void)printf("%s %s: %d losses within %.2e\n", level, expected->half_type, AMP_STEPS, worst);
}

TEST(first_losses_equal_torch_with_rounding)
{
    struct mnist train;

    mnist_read(&train, "train", MNIST_TRAIN_COUNT);
    for (size_t i = 0; i < sizeof amp_cases / sizeof amp_cases[0]; i++)
        for (int k = 0; k < 2 && amp_cases[i].levels[k] != NULL; k++)
            check_level(&train, &amp_cases[i], amp_cases[i].levels[k]);
    mnist_close(&train);
}

TEST_MAIN
