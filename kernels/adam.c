/* Reference of adam.cu. */
#include <assert.h>
#include <math.h>

#include "kernels/optimizer.h"
#include "kernels/values.h"

/* The scalars of a step, computed in double and rounded once. */
struct rates {
    float scale_inverse;
    float decay;  /* Adam: weight decay, added to the gradient; else 0 */
    float shrink; /* AdamW: 1 - lr * weight decay, times the parameter; else 1 */
    float take1;  /* 1 - beta1 */
    float keep2;  /* beta2 */
    float take2;  /* 1 - beta2 */
    float step;   /* lr / (1 - beta1^t) */
    float root2;  /* sqrt(1 - beta2^t) */
    float eps;
};

/* base^n by repeated squaring: pow() of CUDA and of the C library differ. */
static double power(double base, uint32_t n)
{
    double product = 1.0;

    for (; n > 0; n >>= 1) {
        if (n & 1)
            product *= base;
        base *= base;
    }
    return product;
}

static struct rates rates_of(const struct kernel_adam *adam, float scale, uint32_t t)
{
    return (struct rates){
        .scale_inverse = 1.0F / scale,
        .decay = adam->is_adamw ? 0.0F : (float)adam->weight_decay,
        .shrink = adam->is_adamw ? (float)(1.0 - adam->lr * adam->weight_decay) : 1.0F,
        .take1 = (float)(1.0 - adam->beta1),
        .keep2 = (float)adam->beta2,
        .take2 = (float)(1.0 - adam->beta2),
        .step = (float)(adam->lr / (1.0 - power(adam->beta1, t))),
        .root2 = (float)sqrt(1.0 - power(adam->beta2, t)),
        .eps = adam->eps,
    };
}

/* One element; `grad` still has the loss scale. Returns the new parameter. */
static inline float step(const struct rates *r, float param, float grad, float *restrict m,
                         float *restrict v)
{
    grad = grad * r->scale_inverse + r->decay * param;
    param = param * r->shrink;
    *m = *m + r->take1 * (grad - *m);
    *v = r->keep2 * *v + r->take2 * grad * grad;
    return param - r->step * (*m / (sqrtf(*v) / r->root2 + r->eps));
}

/* f32 gradients and no half copy, for the compiler to vectorise. */
static void step_plain(const struct kernel_adam_tensor *tensor, struct rates r)
{
    const float *restrict grads = tensor->grad;
    float *restrict params = tensor->master;
    float *restrict ms = tensor->exp_avg, *restrict vs = tensor->exp_avg_sq;

    for (size_t i = 0; i < tensor->count; i++)
        params[i] = step(&r, params[i], grads[i], &ms[i], &vs[i]);
}

static void step_tensor(const struct kernel_adam_tensor *tensor, const struct kernel_adam *adam,
                        const struct rates *r)
{
    uint16_t *half = tensor->half;

    assert(half == NULL || adam->half_type != KERNEL_F32);
    assert(tensor->count == 0 || (tensor->exp_avg != NULL && tensor->exp_avg_sq != NULL));
    if (adam->grad_type == KERNEL_F32 && half == NULL) {
        step_plain(tensor, *r);
        return;
    }
    for (size_t i = 0; i < tensor->count; i++) {
        tensor->master[i] = step(r, tensor->master[i], values_get(tensor->grad, adam->grad_type, i),
                                 &tensor->exp_avg[i], &tensor->exp_avg_sq[i]);
        if (half != NULL)
            half[i] = values_round(tensor->master[i], adam->half_type);
    }
}

void kernel_adam_ref(const struct kernel_adam_tensor *tensors, uint32_t tensor_count,
                     const struct kernel_adam *adam, const float *scale, const uint32_t *found,
                     const uint32_t *applied)
{
    struct rates rates;

    assert(adam->eps > 0.0F && *applied < UINT32_MAX);
    if (found != NULL && *found != 0)
        return;
    rates = rates_of(adam, *scale, *applied + 1);
    for (uint32_t t = 0; t < tensor_count; t++)
        step_tensor(&tensors[t], adam, &rates);
}
