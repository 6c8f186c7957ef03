#include "tests/lib/made_net.h"

#include "tests/lib/test.h"
#include "worker/data/rng.h"
#include "worker/model/init.h"

typedef enum status (*init_function)(struct net *net, const struct graph *graph, struct rng *rng,
                                     struct err *err);

static struct net *make(struct graph *graph, const struct net_options *options, init_function init,
                        uint64_t seed)
{
    struct net *net = NULL;
    struct rng rng;
    struct err err = {0};

    rng_seed(&rng, seed);
    if (net_new(&net, graph, options, &err) != STATUS_OK ||
        init(net, graph, &rng, &err) != STATUS_OK)
        FAIL("%s", err.text);
    graph_free(&graph);
    return net;
}

struct net *made_net(struct graph *graph, const struct net_options *options, uint64_t seed)
{
    return make(graph, options, init_torch_default, seed);
}

struct net *made_model(const char *arch, const struct model_shape *shape,
                       const struct net_options *options, uint64_t seed)
{
    struct graph *graph = NULL;
    struct err err = {0};

    if (model_build(&graph, arch, shape, &err) != STATUS_OK)
        FAIL("%s: %s", arch, err.text);
    return make(graph, options,
                model_is_resnet(arch) ? init_torchvision_resnet : init_torch_default, seed);
}

struct amp made_amp(const struct amp_request *request)
{
    struct amp amp;
    struct err err = {0};

    if (amp_resolve(&amp, request, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return amp;
}
