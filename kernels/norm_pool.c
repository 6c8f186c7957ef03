/* Reference of norm_pool.cu: the reference of batch norm, then the reference of max pool. */
#include "kernels/norm_pool.h"

#include <assert.h>
#include <stdlib.h>

#include "kernels/values.h"

static size_t out_count(const struct kernel_pool *pool)
{
    return (size_t)pool->images * pool->out_height * pool->out_width * pool->channels;
}

/* Memory for the norm's output, which is the pool's input. */
static void *new_inside(const struct kernel_norm *norm, const struct kernel_pool *pool)
{
    void *inside = malloc(norm->rows * norm->channels * sizeof(float));

    assert(norm->rows == (size_t)pool->images * pool->height * pool->width);
    assert(norm->channels == pool->channels && norm->type == pool->type && inside != NULL);
    return inside;
}

void kernel_norm_pool_ref(const struct kernel_norm *norm, const struct kernel_pool *pool,
                          const void *x, const float *stats, void *y, uint8_t *places)
{
    void *inside = new_inside(norm, pool);

    kernel_norm_apply_ref(norm, x, stats, NULL, inside, NULL);
    kernel_max_pool_ref(pool, inside, y, places);
    for (size_t i = 0; places != NULL && norm->relu && i < out_count(pool); i++)
        if (values_get(y, pool->type, i) <= 0.0F)
            places[i] = KERNEL_NORM_POOL_STOPPED;
    free(inside);
}

/* The gradient of the norm's output, which is the pool's input. */
static void *gradient(const struct kernel_norm *norm, const struct kernel_pool *pool,
                      const void *dy, const uint8_t *places)
{
    const size_t count = out_count(pool);
    void *inside = new_inside(norm, pool), *passed = malloc((count + 1) * sizeof(float));
    uint8_t *best = malloc(count + 1);

    assert(passed != NULL && best != NULL);
    for (size_t i = 0; i < count; i++) {
        const bool stopped = places[i] == KERNEL_NORM_POOL_STOPPED;

        values_set(passed, pool->type, i, stopped ? 0.0F : values_get(dy, pool->type, i));
        best[i] = stopped ? 0 : places[i];
    }
    kernel_max_pool_backward_ref(pool, passed, best, inside);
    free(passed);
    free(best);
    return inside;
}

void kernel_norm_pool_backward_sums_ref(const struct kernel_norm *norm,
                                        const struct kernel_pool *pool, const void *x,
                                        const void *dy, const uint8_t *places, const float *stats,
                                        double *sums)
{
    void *inside = gradient(norm, pool, dy, places);

    kernel_norm_backward_sums_ref(norm, x, inside, NULL, stats, sums);
    free(inside);
}

void kernel_norm_pool_backward_apply_ref(const struct kernel_norm *norm,
                                         const struct kernel_pool *pool, const void *x,
                                         const void *dy, const uint8_t *places, const float *stats,
                                         const float *coefs, void *dx)
{
    void *inside = gradient(norm, pool, dy, places);

    kernel_norm_backward_apply_ref(norm, x, inside, NULL, stats, coefs, dx, NULL);
    free(inside);
}
