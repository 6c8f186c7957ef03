/* Reference of lars.cu. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/optimizer.h"
#include "kernels/grad_norm.h"
#include "kernels/values.h"

/* -- norms: the order of grad_norm.h -- */

static double fold(double lanes[GRAD_NORM_LANES])
{
    for (size_t half = GRAD_NORM_LANES / 2; half > 0; half /= 2)
        for (size_t k = 0; k < half; k++)
            lanes[k] += lanes[k + half];
    return lanes[0];
}

#define LANES_AT_ONCE 16 /* as many as the compiler keeps in registers */

/* The squares of a whole chunk of f32, each value multiplied by `factor`: sum_chunk_f32() for the
 * compiler to vectorise. */
static double sum_whole_chunk(const float *restrict values, float factor)
{
    double lanes[GRAD_NORM_LANES];

    for (size_t lane = 0; lane < GRAD_NORM_LANES; lane += LANES_AT_ONCE) {
        double sums[LANES_AT_ONCE] = {0};

        for (size_t i = lane; i < GRAD_NORM_CHUNK; i += GRAD_NORM_LANES)
            for (size_t k = 0; k < LANES_AT_ONCE; k++) {
                double value = (double)(values[i + k] * factor);

                sums[k] += value * value;
            }
        memcpy(lanes + lane, sums, sizeof sums);
    }
    return fold(lanes);
}

/* The same for `count` values, at most GRAD_NORM_CHUNK. */
static double sum_chunk_f32(const float *values, size_t count, float factor)
{
    double lanes[GRAD_NORM_LANES] = {0};

    if (count == GRAD_NORM_CHUNK)
        return sum_whole_chunk(values, factor);
    for (size_t i = 0; i < count; i++) {
        double value = (double)(values[i] * factor);

        lanes[i % GRAD_NORM_LANES] += value * value;
    }
    return fold(lanes);
}

static double sum_chunk(const void *values, enum kernel_type type, size_t at, size_t count,
                        float factor)
{
    float wide[GRAD_NORM_CHUNK];

    if (type == KERNEL_F32)
        return sum_chunk_f32((const float *)values + at, count, factor);
    for (size_t i = 0; i < count; i++)
        wide[i] = values_get(values, type, at + i);
    return sum_chunk_f32(wide, count, factor);
}

static double norm(const void *values, enum kernel_type type, size_t count, float factor)
{
    double lanes[GRAD_NORM_LANES] = {0};

    for (size_t at = 0, chunk = 0; at < count; at += GRAD_NORM_CHUNK, chunk++) {
        size_t n = count - at < GRAD_NORM_CHUNK ? count - at : GRAD_NORM_CHUNK;

        lanes[chunk % GRAD_NORM_LANES] += sum_chunk(values, type, at, n, factor);
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

/* The scalars of a step, the same for all elements of a tensor. */
struct rates {
    float scale_inverse, decay, ratio;
    float inner, outer; /* LARS multiplies by lr before the momentum buffer (inner), LARC after it
                           (outer); the other one is 1 */
    float momentum;
    bool nesterov;
};

/* The decayed gradient times the ratio; `grad` still has the loss scale. */
static inline float change_of(const struct rates *r, float param, float grad)
{
    return (grad * r->scale_inverse + r->decay * param) * r->ratio * r->inner;
}

/* Passes a change through the momentum buffer. `nesterov` is r->nesterov, as a parameter of its
 * own: where the caller passes a constant, the compiler vectorises the loop. */
static inline float change_by(const struct rates *r, bool nesterov, float change, float *buf)
{
    *buf = r->momentum * *buf + change;
    return nesterov ? change + r->momentum * *buf : *buf;
}

/* f32 gradients and no half copy: one loop per case, for the compiler to vectorise. */
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

    assert(tensor_count == 0 || tensors != NULL);
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

/* The ratios of one launch's tensors, then two sums for each chunk. Several launches run one after
 * another on a stream, so they share one workspace. */
size_t kernel_lars_workspace(const struct kernel_lars_tensor *tensors, uint32_t tensor_count)
{
    size_t chunks = 0;

    for (uint32_t t = 0; t < tensor_count; t++)
        chunks += (tensors[t].count + GRAD_NORM_CHUNK - 1) / GRAD_NORM_CHUNK;
    return KERNEL_LARS_LAUNCH_TENSORS * sizeof(double) + chunks * 2 * sizeof(double);
}
