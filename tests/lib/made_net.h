/* Nets for tests, with PyTorch's initial weights. */
#ifndef TESTS_LIB_MADE_NET_H
#define TESTS_LIB_MADE_NET_H

#include <stdint.h>

#include "worker/graph/amp.h"
#include "worker/model/model.h"
#include "worker/net/net.h"

/* The net of a model ("convnet", "resnet18", ...), for batches of options->batch_max, with the
 * weights after torch.manual_seed(seed). Fails the test on an error. The caller frees it. */
struct net *made_model(const char *arch, const struct model_shape *shape,
                       const struct net_options *options, uint64_t seed);
/* The same for a graph, which this function frees. */
struct net *made_net(struct graph *graph, const struct net_options *options, uint64_t seed);
/* amp_resolve(), which must succeed. */
struct amp made_amp(const struct amp_request *request);

#endif
