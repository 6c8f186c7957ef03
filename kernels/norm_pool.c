/* Reference of norm_pool.cu. */
#include "kernels/norm_pool.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/columns_ref.h"
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

/* Which input of a window the norm makes the maximum. */
struct best {
    float x;
    uint8_t place;
    bool is_any;
};

static void look(struct best *best, float x, bool is_reversed, uint32_t place)
{
    const bool is_beyond = is_reversed ? x < best->x : x > best->x;

    if (best->is_any && !is_beyond && !isnan(x))
        return;
    *best = (struct best){x, (uint8_t)place, true};
}

/* y, place and kept number i, of one channel of one window. */
static struct best best_of(const struct kernel_pool *pool, const void *x, bool is_reversed,
                           size_t i)
{
    const size_t channel = i % pool->channels, pixel = i / pool->channels;
    const size_t ox = pixel % pool->out_width, line = pixel / pool->out_width;
    const size_t oy = line % pool->out_height, image = line / pool->out_height;
    struct best best = {0};

    for (uint32_t k = 0; k < pool->kernel * pool->kernel; k++) {
        /* above the image: wraps to a huge row */
        const size_t row = oy * pool->stride + k / pool->kernel - pool->pad;
        const size_t column = ox * pool->stride + k % pool->kernel - pool->pad;
        const size_t from = ((image * pool->height + row) * pool->width + column) * pool->channels;

        if (row < pool->height && column < pool->width)
            look(&best, values_get(x, pool->type, from + channel), is_reversed, k);
    }
    return best;
}

void kernel_norm_pool_ref(const struct kernel_norm *norm, const struct kernel_pool *pool,
                          const void *x, const float *stats, void *y, uint8_t *places, void *kept)
{
    const size_t channels = norm->channels;

    assert(norm->rows == (size_t)pool->images * pool->height * pool->width);
    assert(norm->channels == pool->channels && norm->type == pool->type);
    for (size_t i = 0; i < out_count(pool); i++) {
        const size_t c = i % channels;
        const float scale = stats[KERNEL_NORM_SCALE * channels + c];
        const struct best best = best_of(pool, x, scale < 0.0F, i);
        float out = (best.x - stats[KERNEL_NORM_MEAN * channels + c]) * scale +
                    stats[KERNEL_NORM_BETA * channels + c];

        if (norm->relu && out <= 0.0F)
            out = 0.0F;
        values_set(y, pool->type, i, out);
        if (places == NULL)
            continue;
        values_set(kept, pool->type, i, best.x);
        places[i] = norm->relu && values_get(y, pool->type, i) <= 0.0F ? KERNEL_NORM_POOL_STOPPED
                                                                       : best.place;
    }
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

/* Terms of the backward sums. */
struct maxima {
    const struct kernel_norm *norm;
    const void *kept, *dy;
    const uint8_t *places;
    const float *stats;
};

static void maxima_terms(const void *user, size_t row, uint32_t channel,
                         float terms[COLUMNS_REF_KINDS])
{
    const struct maxima *m = user;
    const size_t i = row * m->norm->channels + channel;

    terms[0] =
        m->places[i] == KERNEL_NORM_POOL_STOPPED ? 0.0F : values_get(m->dy, m->norm->type, i);
    terms[1] = terms[0] * (values_get(m->kept, m->norm->type, i) -
                           m->stats[KERNEL_NORM_MEAN * (size_t)m->norm->channels + channel]);
}

void kernel_norm_pool_backward_sums_ref(const struct kernel_norm *norm,
                                        const struct kernel_pool *pool, const void *kept,
                                        const void *dy, const uint8_t *places, const float *stats,
                                        double *sums)
{
    const struct maxima maxima = {norm, kept, dy, places, stats};
    const size_t rows = out_count(pool) / pool->channels;

    for (uint32_t c = 0; c < norm->channels; c++) {
        double in[COLUMNS_REF_KINDS];

        columns_ref(maxima_terms, &maxima, rows, norm->channels, c,
                    kernel_pack(norm->type, norm->channels), in);
        sums[c] = in[0];
        sums[norm->channels + c] = in[1];
    }
    sums[2 * (size_t)norm->channels] = (double)norm->rows;
}

void kernel_norm_pool_gradients_ref(const struct kernel_norm *norm, const struct kernel_pool *pool,
                                    const void *kept, const void *dy, const uint8_t *places,
                                    const float *stats, void *dgamma, void *dbeta, float *coefs,
                                    double *sums)
{
    kernel_norm_pool_backward_sums_ref(norm, pool, kept, dy, places, stats, sums);
    kernel_norm_backward_finish_ref(norm, sums, sums, stats, dgamma, dbeta, coefs);
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
