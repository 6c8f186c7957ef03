/* torch.optim.SGD. */
#include "worker/optim.h"

void optim_sgd(float *restrict param, const float *restrict grad, float *restrict momentum,
               size_t n, const struct net_sgd *sgd, bool first)
{
    const float lr = sgd->lr, mu = sgd->momentum, decay = sgd->weight_decay;
    const float take = 1.0F - sgd->dampening;

    if (momentum == NULL) {
        for (size_t i = 0; i < n; i++)
            param[i] -= lr * (grad[i] + decay * param[i]);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] + decay * param[i];
        float buf = first ? g : mu * momentum[i] + take * g;

        momentum[i] = buf;
        param[i] -= lr * (sgd->nesterov ? g + mu * buf : buf);
    }
}
