/* Initial parameters, with the random numbers that PyTorch draws. */
#ifndef WORKER_MODEL_INIT_H
#define WORKER_MODEL_INIT_H

#include "common/status.h"
#include "worker/data/rng.h"
#include "worker/graph/graph.h"
#include "worker/net/net.h"

/* The defaults of torch.nn modules, layer by layer in the order of the graph. After rng_seed(rng,
 * s) the values equal those after torch.manual_seed(s) to the bit. `graph` is the one that `net`
 * was made from. Errors: STATUS_MEMORY, STATUS_LIBRARY. */
enum status init_torch_default(struct net *net, const struct graph *graph, struct rng *rng,
                               struct err *err);

/* The same for torchvision's ResNet: first the defaults, then each convolution weight again by
 * kaiming_normal_(mode="fan_out", nonlinearity="relu"). Differs from torch only in the last bits
 * (rng.h). Errors as above. */
enum status init_torchvision_resnet(struct net *net, const struct graph *graph, struct rng *rng,
                                    struct err *err);

/* Makes every residual block start as the identity: sets the weight of each batch norm that is the
 * first input of an add to 0. *count gets their number. Errors as above.
 * Source: torchvision's zero_init_residual; Goyal et al. 2017, section 5.1. */
enum status init_zero_residual(struct net *net, const struct graph *graph, uint32_t *count,
                               struct err *err);

#endif
