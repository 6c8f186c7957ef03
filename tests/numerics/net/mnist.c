#include "tests/numerics/net/mnist.h"

#include <stdio.h>
#include <stdlib.h>

#include <zlib.h>

#include "tests/lib/test.h"
#include "worker/init.h"
#include "worker/model.h"
#include "worker/rng.h"

/* [count] bytes behind the header of a gzipped IDX file. */
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

void mnist_batch(const struct mnist *mnist, const int64_t *order, uint32_t n, float *images,
                 int64_t *labels)
{
    for (uint32_t i = 0; i < n; i++) {
        const size_t at = order != NULL ? (size_t)order[i] : i;

        labels[i] = mnist->labels[at];
        for (size_t p = 0; p < MNIST_PIXELS; p++)
            images[i * MNIST_PIXELS + p] = (float)mnist->pixels[at * MNIST_PIXELS + p] / 255.0F;
    }
}

struct net *mnist_convnet(uint32_t batch_max, const struct amp *amp)
{
    const struct model_shape shape = {1, 28, 28, 10};
    const struct net_options options = {.batch_max = batch_max, .amp = amp};
    struct graph *graph = NULL;
    struct net *net = NULL;
    struct rng rng;
    struct err err = {0};

    if (model_build(&graph, "convnet", &shape, &err) != STATUS_OK ||
        net_new(&net, graph, &options, &err) != STATUS_OK)
        FAIL("%s", err.text);
    rng_seed(&rng, 0);
    CHECK_EQ(init_torch_default(net, graph, &rng, &err), STATUS_OK);
    graph_free(&graph);
    return net;
}
