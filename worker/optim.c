/* torch.optim.SGD: the twin of the CUDA kernel does it. */
#include "worker/optim.h"

#include "kernels/kernels.h"

void optim_sgd(float *param, const float *grad, float *momentum, size_t n,
               const struct net_sgd *sgd, const struct scaler *scaler)
{
    const struct kernel_sgd_tensor tensor = {
        .grad = grad, .master = param, .momentum = momentum, .count = n};
    const struct kernel_sgd kernel = {
        .grad_type = KERNEL_F32,
        .half_type = KERNEL_F32,
        .lr = sgd->lr,
        .momentum = momentum != NULL ? sgd->momentum : 0.0F,
        .dampening = sgd->dampening,
        .weight_decay = sgd->weight_decay,
        .nesterov = sgd->nesterov,
        .is_first_step = !scaler->has_momentum,
    };

    kernel_sgd_ref(&tensor, 1, &kernel, &scaler->scale, &scaler->found_inf);
}
