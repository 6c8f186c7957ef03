#include "tests/numerics/net/mnist.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <zlib.h>

#include "tests/lib/made_net.h"
#include "tests/lib/test.h"
#include "worker/net/state.h"
#include "worker/model/model.h"
#include "worker/data/rng.h"

/* The [count] bytes after the header of a gzipped IDX file. */
static unsigned char *read_idx(const char *prefix, const char *kind, unsigned header,
                               unsigned count)
{
    unsigned char *bytes = malloc(count);
    char name[128];
    const char *path;
    gzFile file;

    (void)snprintf(name, sizeof name, "data/mnist/%s-%s-ubyte.gz", prefix, kind);
    path = test_shared(name);
    if (path == NULL)
        SKIP("no data/mnist in the shared folder");
    file = gzopen(path, "rb");
    CHECK(file != NULL && bytes != NULL);
    CHECK_EQ(gzread(file, bytes, header), header);
    CHECK_EQ(gzread(file, bytes, count), count);
    (void)gzclose(file);
    return bytes;
}

void mnist_read(struct mnist *mnist, const char *prefix, uint32_t count)
{
    mnist->pixels = read_idx(prefix, "images-idx3", 16, count * MNIST_PIXELS);
    mnist->labels = read_idx(prefix, "labels-idx1", 8, count);
}

void mnist_close(struct mnist *mnist)
{
    free(mnist->pixels);
    free(mnist->labels);
}

/* The images order[0] to order[MNIST_BATCH - 1], each pixel / 255. */
static void read_batch(const struct mnist *mnist, const int64_t *order, float *images,
                       int64_t *labels)
{
    for (uint32_t i = 0; i < MNIST_BATCH; i++) {
        const size_t at = (size_t)order[i];

        labels[i] = mnist->labels[at];
        for (size_t p = 0; p < MNIST_PIXELS; p++)
            images[i * MNIST_PIXELS + p] = (float)mnist->pixels[at * MNIST_PIXELS + p] / 255.0F;
    }
}

double mnist_train(struct net *net, const struct mnist *train, const struct optim *optim,
                   const float *losses, float scale, uint32_t steps, double tolerance)
{
    static float images[MNIST_BATCH * MNIST_PIXELS];
    static int64_t labels[MNIST_BATCH], order[MNIST_TRAIN_COUNT];
    struct net_result result;
    double worst = 0.0;
    struct rng rng;

    CHECK(steps * MNIST_BATCH <= MNIST_TRAIN_COUNT);
    rng_seed(&rng, 0); /* DistributedSampler: seed + epoch */
    rng_permute(&rng, order, MNIST_TRAIN_COUNT);
    for (uint32_t step = 0; step < steps; step++) {
        double loss;

        read_batch(train, order + (size_t)step * MNIST_BATCH, images, labels);
        CHECK(scale == 0.0F || net_scaler(net).scale == scale);
        CHECK_EQ(net_forward(net, images, labels, MNIST_BATCH, true, &result, NULL), STATUS_OK);
        CHECK_EQ(net_backward(net, 1.0F, NULL), STATUS_OK);
        net_update(net, optim);
        loss = result.loss_sum / MNIST_BATCH;
        CHECK_NEAR(loss, losses[step], tolerance);
        worst = fmax(worst, fabs(loss - (double)losses[step]));
    }
    return worst;
}

struct net *mnist_convnet(const struct amp *amp)
{
    const struct model_shape shape = {1, 28, 28, 10};
    const struct net_options options = {.batch_max = MNIST_BATCH, .amp = amp};

    return made_model("convnet", &shape, &options, 0);
}
