/* Twin of lars.cu. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels_optim.h"
#include "kernels/norm.h"
#include "kernels/values.h"

/* -- norms: the order of norm.h -- */

static double fold(double lanes[NORM_LANES])
{
    for (size_t half = NORM_LANES / 2; half > 0; half /= 2)
        for (size_t k = 0; k < half; k++)
            lanes[k] += lanes[k + half];
    return lanes[0];
}

#define LANES_AT_ONCE 16 /* that the compiler keeps in registers */

/* A whole chunk of f32, times `factor`. */
static double sum_whole_chunk(const float *restrict values, float factor)
{
    double lanes[NORM_LANES];

    for (size_t lane = 0; lane < NORM_LANES; lane += LANES_AT_ONCE) {
        double sums[LANES_AT_ONCE] = {0};

        for (size_t i = lane; i < NORM_CHUNK; i += NORM_LANES)
            for (size_t k = 0; k < LANES_AT_ONCE; k++) {
                double value = (double)(values[i + k] * factor);

                sums[k] += value * value;
            }
        memcpy(lanes + lane, sums, sizeof sums);
    }
    return fold(lanes);
}

/* `count` up to NORM_CHUNK. */
static double sum_chunk_f32(const float *values, size_t count, float factor)
{
    double lanes[NORM_LANES] = {0};

    if (count == NORM_CHUNK)
        return sum_whole_chunk(values, factor);
    for (size_t i = 0; i < count; i++) {
        double value = (double)(values[i] * factor);

        lanes[i % NORM_LANES] += value * value;
    }
    return fold(lanes);
}

static double sum_chunk(const void *values, enum kernel_type type, size_t at, size_t count,
                        float factor)
{
    float wide[NORM_CHUNK];

    if (type == KERNEL_F32)
        return sum_chunk_f32((const float *)values + at, count, factor);
    for (size_t i = 0; i < count; i++)
        wide[i] = values_get(values, type, at + i);
    return sum_chunk_f32(wide, count, factor);
}

static double norm(const void *values, enum kernel_type type, size_t count, float factor)
{
    double lanes[NORM_LANES] = {0};

    for (size_t at = 0, chunk = 0; at < count; at += NORM_CHUNK, chunk++) {
        size_t n = count - at < NORM_CHUNK ? count - at : NORM_CHUNK;

        lanes[chunk % NORM_LANES] += sum_chunk(values, type, at, n, factor);
    }
    return sqrt(fold(lanes));
}

/* -- the step -- */

static float ratio_of(const struct kernel_lars *lars, double param_norm, double grad_norm)
{
    const double below = grad_norm + (double)lars->weight_decay * param_norm;
    const double above = (double)lars->trust * param_norm;
    double ratio;

    if (!lars->is_larc)
        return param_norm != 0.0 && below != 0.0 ? (float)(above / below) : 1.0F;
    if (param_norm == 0.0)
        return 1.0F;
    if (grad_norm == 0.0)
        return 0.0F;
    ratio = above / (below + (double)lars->eps) / (double)lars->lr;
    return ratio < 1.0 ? (float)ratio : 1.0F;
}

/* What a step does to every element. */
struct rates {
    float scale_inverse, decay, ratio;
    float inner, outer; /* the rate, in and behind the momentum buffer: one of them is 1 */
    float momentum;
    bool nesterov;
};

/* What the parameter goes by; grad: still scaled. */
static inline float change_of(const struct rates *r, float param, float grad)
{
    return (grad * r->scale_inverse + r->decay * param) * r->ratio * r->inner;
}

/* The same through the momentum buffer. `nesterov` is r->nesterov, apart because as a constant it
 * lets the compiler take several elements at once. */
static inline float change_by(const struct rates *r, bool nesterov, float change, float *buf)
{
    *buf = r->momentum * *buf + change;
    return nesterov ? change + r->momentum * *buf : *buf;
}

/* The common case: the compiler may take several elements at once. */
static void step_plain(const struct kernel_lars_tensor *tensor, struct rates r)
{
    const float *restrict grads = tensor->grad;
    float *restrict params = tensor->master, *restrict bufs = tensor->momentum;

    for (size_t i = 0; r.momentum == 0.0F && i < tensor->count; i++)
        params[i] = params[i] - r.outer * change_of(&r, params[i], grads[i]);
    for (size_t i = 0; r.momentum != 0.0F && r.nesterov && i < tensor->count; i++) {
        float change = change_of(&r, params[i], grads[i]);

        params[i] = params[i] - r.outer * change_by(&r, true, change, &bufs[i]);
    }
    for (size_t i = 0; r.momentum != 0.0F && !r.nesterov && i < tensor->count; i++) {
        float change = change_of(&r, params[i], grads[i]);

        params[i] = params[i] - r.outer * change_by(&r, false, change, &bufs[i]);
    }
}

static void step_tensor(const struct kernel_lars_tensor *tensor, const struct kernel_lars *lars,
                        const struct rates *r)
{
    uint16_t *half = tensor->half;

    assert(lars->momentum == 0.0F || tensor->momentum != NULL);
    assert(half == NULL || lars->half_type != KERNEL_F32);
    if (lars->grad_type == KERNEL_F32 && half == NULL) {
        step_plain(tensor, *r);
        return;
    }
    for (size_t i = 0; i < tensor->count; i++) {
        float change =
            change_of(r, tensor->master[i], values_get(tensor->grad, lars->grad_type, i));

        if (lars->momentum != 0.0F)
            change = change_by(r, r->nesterov, change, &tensor->momentum[i]);
        tensor->master[i] = tensor->master[i] - r->outer * change;
        if (half != NULL)
            half[i] = values_round(tensor->master[i], lars->half_type);
    }
}

void kernel_lars_ref(const struct kernel_lars_tensor *tensors, uint32_t tensor_count,
                     const struct kernel_lars *lars, const float *scale, const uint32_t *found)
{
    struct rates rates = {
        .scale_inverse = 1.0F / *scale,
        .decay = lars->weight_decay,
        .inner = lars->is_larc ? 1.0F : lars->lr,
        .outer = lars->is_larc ? lars->lr : 1.0F,
        .momentum = lars->momentum,
        .nesterov = lars->nesterov,
    };

    if (found != NULL && *found != 0)
        return;
    for (uint32_t t = 0; t < tensor_count; t++) {
        const struct kernel_lars_tensor *tensor = &tensors[t];

        rates.ratio = 1.0F;
        if (tensor->adapts)
            rates.ratio =
                ratio_of(lars, norm(tensor->master, KERNEL_F32, tensor->count, 1.0F),
                         norm(tensor->grad, lars->grad_type, tensor->count, rates.scale_inverse));
        step_tensor(tensor, lars, &rates);
    }
}
