/* Optimizer steps over flat memory. */
#ifndef WORKER_OPTIM_H
#define WORKER_OPTIM_H

#include <stdbool.h>
#include <stddef.h>

#include "worker/net.h"

/* One step of torch.optim.SGD over n elements, in place:
 *   g = grad / scaler->scale
 *   g += weight_decay * p;  buf = g (first) or momentum * buf + (1 - dampening) * g;
 *   g = nesterov ? g + momentum * buf : buf;  p -= lr * g
 *   param, grad, momentum: [n]; momentum NULL without momentum. grad is not changed.
 *   first: !scaler->has_momentum, momentum holds nothing yet
 * Nothing is written where scaler->found_inf is set. A slot that is 0 in all three stays 0, so a
 * layout's padding may lie inside. */
void optim_sgd(float *param, const float *grad, float *momentum, size_t n,
               const struct net_sgd *sgd, const struct scaler *scaler);

#endif
