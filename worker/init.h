/* Initial parameters, drawn as PyTorch draws them. */
#ifndef WORKER_INIT_H
#define WORKER_INIT_H

#include "common/status.h"
#include "worker/graph.h"
#include "worker/net.h"
#include "worker/rng.h"

/* The defaults of torch.nn modules, layer after layer in the graph's order, from `rng` (rng_seed
 * first: the values equal torch.manual_seed's to the bit). `graph` is the one that `net` was made
 * from. Errors: STATUS_MEMORY, STATUS_LIBRARY. */
enum status init_torch_default(struct net *net, const struct graph *graph, struct rng *rng,
                               struct err *err);

/* As torchvision's ResNet: the defaults are drawn first, then every convolution anew by
 * kaiming_normal_(mode="fan_out", nonlinearity="relu"); differs from torch in the last bits alone
 * (rng.h). Errors as above. */
enum status init_torchvision_resnet(struct net *net, const struct graph *graph, struct rng *rng,
                                    struct err *err);

/* Every residual block begins as the identity: the scale of a batch norm whose value is the first
 * input of an add becomes 0. Source: torchvision's zero_init_residual; Goyal et al. 2017, section
 * 5.1. `*count` gets how many there were. Errors as above. */
enum status init_zero_residual(struct net *net, const struct graph *graph, uint32_t *count,
                               struct err *err);

#endif
