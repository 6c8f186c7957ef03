#include "tests/unit/worker/net/batch.h"

#include "tests/lib/test.h"
#include "worker/data/rng.h"
#include "worker/model/init.h"
#include "worker/model/model.h"

struct net *batch_net(const struct net_options *options, uint32_t side, uint32_t classes)
{
    const struct model_shape shape = {1, side, side, classes};
    struct graph *graph = NULL;
    struct net *net = NULL;
    struct rng rng;

    CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
    CHECK_EQ(net_new(&net, graph, options, NULL), STATUS_OK);
    rng_seed(&rng, 3);
    CHECK_EQ(init_torch_default(net, graph, &rng, NULL), STATUS_OK);
    graph_free(&graph);
    return net;
}

void batch_draw(uint32_t seed, float low, uint32_t n, uint32_t side, float *images, int64_t *labels)
{
    struct rng rng;

    rng_seed(&rng, seed);
    rng_uniform_f32(&rng, low, 1.0F, images, (size_t)n * side * side);
    for (uint32_t i = 0; i < n; i++)
        labels[i] = (int64_t)(rng_u32(&rng) % 10);
}
