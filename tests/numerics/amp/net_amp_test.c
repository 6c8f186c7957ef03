/* The ConvNet at O1, O2 and O3 against PyTorch with explicit rounding: the first 50 losses on real
 * MNIST, and the loss scale at each of them. amp_values.py says how the values were made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "tests/lib/test.h"
#include "tests/numerics/amp/amp_values.h"
#include "worker/amp.h"
#include "worker/init.h"
#include "worker/model.h"
#include "worker/net.h"
#include "worker/rng.h"

#define IMAGES 60000U
#define PIXELS (28U * 28U)
#define BATCH 100U
/* A sum in another order changes the last bit of a rounded value here and there, and training
 * carries that on; fp16 has 11 bits, bf16 8. */
#define TOLERANCE_FP16 5e-3
#define TOLERANCE_BF16 1e-2

static unsigned char *read_idx(const char *name, unsigned header, unsigned count)
{
    const char *path = test_shared(name);
    unsigned char *bytes = malloc(count);
    gzFile file;

    if (path == NULL)
        SKIP("no data/mnist in the shared folder");
    file = gzopen(path, "rb");
    CHECK(file != NULL && bytes != NULL);
    CHECK_EQ(gzread(file, bytes, header), header);
    CHECK_EQ(gzread(file, bytes, count), count);
    (void)gzclose(file);
    return bytes;
}

static struct net *make_net(const struct amp_case *expected)
{
    const struct model_shape shape = {1, 28, 28, 10};
    const struct amp_request request = {.level = expected->level, .low_type = expected->low_type};
    struct net_options options = {.batch_max = BATCH};
    struct graph *graph = NULL;
    struct net *net = NULL;
    struct amp amp;
    struct rng rng;
    struct err err = {0};

    if (amp_resolve(&amp, &request, &err) != STATUS_OK)
        FAIL("%s", err.text);
    options.amp = &amp;
    if (model_build(&graph, "convnet", &shape, &err) != STATUS_OK ||
        net_new(&net, graph, &options, &err) != STATUS_OK)
        FAIL("%s", err.text);
    rng_seed(&rng, 0);
    CHECK_EQ(init_torch_default(net, graph, &rng, &err), STATUS_OK);
    graph_free(&graph);
    return net;
}

static double run_case(const struct amp_case *expected, const unsigned char *pixels,
                       const unsigned char *labels, double tolerance)
{
    const struct optim sgd = {.lr = 0.01F, .momentum = 0.9F};
    struct net *net = make_net(expected);
    static float images[BATCH * PIXELS];
    static int64_t batch_labels[BATCH], order[IMAGES];
    struct net_result result;
    double worst = 0.0;
    struct rng rng;

    rng_seed(&rng, 0);
    rng_permute(&rng, order, IMAGES);
    for (size_t step = 0; step < AMP_STEPS; step++) {
        double off;

        for (size_t i = 0; i < BATCH; i++) {
            size_t at = (size_t)order[step * BATCH + i];

            batch_labels[i] = labels[at];
            for (size_t p = 0; p < PIXELS; p++)
                images[i * PIXELS + p] = (float)pixels[at * PIXELS + p] / 255.0F;
        }
        CHECK(net_scaler(net).scale == expected->scales[step]);
        CHECK_EQ(net_forward(net, images, batch_labels, BATCH, true, &result, NULL), STATUS_OK);
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
    unsigned char *pixels = read_idx("data/mnist/train-images-idx3-ubyte.gz", 16, IMAGES * PIXELS);
    unsigned char *labels = read_idx("data/mnist/train-labels-idx1-ubyte.gz", 8, IMAGES);

    for (size_t i = 0; i < sizeof amp_cases / sizeof amp_cases[0]; i++) {
        const struct amp_case *expected = &amp_cases[i];
        bool is_bf16 = strcmp(expected->low_type, "bf16") == 0;
        double worst =
            run_case(expected, pixels, labels, is_bf16 ? TOLERANCE_BF16 : TOLERANCE_FP16);

        (void)printf("%s %s: %d losses within %.2e\n", expected->level, expected->low_type,
                     AMP_STEPS, worst);
    }
    free(pixels);
    free(labels);
}

TEST_MAIN
