/* Reference of sgd.cu. */
#include "kernels/optimizer.h"

#include <assert.h>
#include <math.h>

#include "kernels/values.h"

/* One element; `grad` is already divided by the loss scale. Returns the new parameter. */
static float step(const struct kernel_sgd *sgd, float param, float grad, float *momentum)
{
    float buf;

    grad = grad + sgd->weight_decay * param;
    if (sgd->momentum == 0.0F)
        return param - sgd->lr * grad;
    assert(momentum != NULL);
    buf = sgd->is_first_step ? grad : sgd->momentum * *momentum + (1.0F - sgd->dampening) * grad;
    *momentum = buf;
    return param - sgd->lr * (sgd->nesterov ? grad + sgd->momentum * buf : buf);
}

/* step() for f32 gradients without a half copy, for the compiler to vectorise. */
static void step_plain(const struct kernel_sgd_tensor *tensor, const struct kernel_sgd *sgd)
{
    const float *restrict grads = tensor->grad;
    float *restrict params = tensor->master, *restrict bufs = tensor->momentum;
    const float lr = sgd->lr, mu = sgd->momentum, decay = sgd->weight_decay;
    const float take = 1.0F - sgd->dampening;

    if (mu == 0.0F) {
        for (size_t i = 0; i < tensor->count; i++)
            params[i] = params[i] - lr * (grads[i] + decay * params[i]);
        return;
    }
    for (size_t i = 0; i < tensor->count; i++) {
        float grad = grads[i] + decay * params[i];
        float buf = sgd->is_first_step ? grad : mu * bufs[i] + take * grad;

        bufs[i] = buf;
        params[i] = params[i] - lr * (sgd->nesterov ? grad + mu * buf : buf);
    }
}

static void step_tensor(const struct kernel_sgd_tensor *tensor, const struct kernel_sgd *sgd,
                        float scale_inverse)
{
    uint16_t *half = tensor->half;

    if (sgd->grad_type == KERNEL_F32 && half == NULL && scale_inverse == 1.0F) {
        step_plain(tensor, sgd);
        return;
    }
    for (size_t i = 0; i < tensor->count; i++) {
        float grad = values_get(tensor->grad, sgd->grad_type, i) * scale_inverse;
        float *momentum = tensor->momentum != NULL ? &tensor->momentum[i] : NULL;

        tensor->master[i] = step(sgd, tensor->master[i], grad, momentum);
        if (half != NULL)
            half[i] = values_round(tensor->master[i], sgd->half_type);
    }
}

void kernel_sgd_ref(const struct kernel_sgd_tensor *tensors, uint32_t tensor_count,
                    const struct kernel_sgd *sgd, const float *scale, const uint32_t *found)
{
    assert(scale != NULL);
    if (found != NULL && *found != 0)
        return;
    for (uint32_t t = 0; t < tensor_count; t++) {
        assert(sgd->momentum == 0.0F || tensors[t].momentum != NULL);
        assert(tensors[t].half == NULL || sgd->half_type != KERNEL_F32);
        step_tensor(&tensors[t], sgd, 1.0F / *scale);
    }
}
