/* Reference of clip.cu. Sums are split over the threads of the grid as in clip.cu, so that both
 * give the same bits. */
#include "kernels/gradients.h"

#include <assert.h>
#include <math.h>

#include "kernels/sums.h"
#include "kernels/values.h"

static uint32_t pack_of(const struct kernel_span *span)
{
    return span->type == KERNEL_F32 ? 4 : 8;
}

static void clip_values(const struct kernel_span *span, float bound)
{
    for (size_t i = 0; i < span->count; i++) {
        const float value = values_get(span->values, span->type, i);

        values_set(span->values, span->type, i,
                   value > bound    ? bound
                   : value < -bound ? -bound
                                    : value);
    }
}

/* The squares that one thread of the kernel adds, span after span. */
static double thread_sum(const struct kernel_span *spans, uint32_t span_count, size_t thread)
{
    double sum = 0.0;

    for (uint32_t s = 0; s < span_count; s++) {
        const size_t pack = pack_of(&spans[s]);

        for (size_t at = thread * pack; at < spans[s].count;
             at += (size_t)KERNEL_CLIP_BLOCKS * SUMS_THREADS * pack)
            for (size_t i = at; i < at + pack && i < spans[s].count; i++) {
                const double value = (double)values_get(spans[s].values, spans[s].type, i);

                sum += value * value;
            }
    }
    return sum;
}

/* Also leaves the sums of the blocks and the factor in `sums`, as the kernel does. */
static double factor_of(const struct kernel_span *spans, uint32_t span_count, float norm,
                        float scale, double *sums)
{
    double threads[SUMS_THREADS];

    for (size_t block = 0; block < KERNEL_CLIP_BLOCKS; block++) {
        for (size_t t = 0; t < SUMS_THREADS; t++)
            threads[t] = thread_sum(spans, span_count, block * SUMS_THREADS + t);
        sums[block] = sums_block(threads);
    }
    if (!(norm > 0.0F))
        return 1.0;
    for (size_t t = 0; t < SUMS_THREADS; t++)
        threads[t] = 0.0;
    for (size_t block = 0; block < KERNEL_CLIP_BLOCKS; block++)
        threads[block % SUMS_THREADS] += sums[block];
    sums[KERNEL_CLIP_BLOCKS] = (double)norm / (sqrt(sums_block(threads)) / (double)scale + 1e-6);
    return sums[KERNEL_CLIP_BLOCKS];
}

void kernel_clip_ref(const struct kernel_span *spans, uint32_t span_count,
                     const struct kernel_clip *clip, const float *scale, const uint32_t *found,
                     void *scratch)
{
    double factor;

    assert(span_count <= KERNEL_SPANS_MAX && scratch != NULL && *scale > 0.0F);
    if ((found != NULL && *found != 0) || (!(clip->value > 0.0F) && !(clip->norm > 0.0F)))
        return;
    for (uint32_t s = 0; s < span_count && clip->value > 0.0F; s++)
        clip_values(&spans[s], clip->value * *scale);
    factor = factor_of(spans, span_count, clip->norm, *scale, scratch);
    if (factor >= 1.0)
        return;
    for (uint32_t s = 0; s < span_count; s++)
        for (size_t i = 0; i < spans[s].count; i++)
            values_set(spans[s].values, spans[s].type, i,
                       values_get(spans[s].values, spans[s].type, i) * (float)factor);
}
