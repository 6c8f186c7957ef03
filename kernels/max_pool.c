/* Reference of max_pool.cu. For each input the kernel gathers the windows that cover it, row by
 * row. The reference visits the windows in that order and scatters, so each input adds the same
 * terms in the same order. */
#include "kernels/layers.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/values.h"

/* One output element: a window of one channel. */
struct window {
    const struct kernel_pool *pool;
    uint32_t image, y, x, channel;
};

static size_t out_at(const struct window *w)
{
    const struct kernel_pool *pool = w->pool;

    return (((size_t)w->image * pool->out_height + w->y) * pool->out_width + w->x) *
               pool->channels +
           w->channel;
}

/* The index in x of element `k` of the window; false where it is padding. */
static bool in_at(const struct window *w, uint32_t k, size_t *at)
{
    const struct kernel_pool *pool = w->pool;
    const int64_t y = (int64_t)w->y * pool->stride + k / pool->kernel - pool->pad;
    const int64_t x = (int64_t)w->x * pool->stride + k % pool->kernel - pool->pad;

    if (y < 0 || x < 0 || y >= pool->height || x >= pool->width)
        return false;
    *at =
        (((size_t)w->image * pool->height + (size_t)y) * pool->width + (size_t)x) * pool->channels +
        w->channel;
    return true;
}

/* Moves to the next output element in memory order; false after the last. */
static bool next(struct window *w)
{
    const struct kernel_pool *pool = w->pool;

    if (++w->channel < pool->channels)
        return true;
    w->channel = 0;
    if (++w->x < pool->out_width)
        return true;
    w->x = 0;
    if (++w->y < pool->out_height)
        return true;
    w->y = 0;
    return ++w->image < pool->images;
}

static struct window first(const struct kernel_pool *pool)
{
    assert(pool->kernel > 0 && pool->kernel <= 15 && 2 * pool->pad <= pool->kernel);
    assert(pool->stride > 0 && pool->channels % 4 == 0);
    return (struct window){.pool = pool};
}

static bool is_empty(const struct kernel_pool *pool)
{
    return pool->images == 0 || pool->out_height == 0 || pool->out_width == 0 ||
           pool->channels == 0;
}

void kernel_max_pool_ref(const struct kernel_pool *pool, const void *x, void *y, uint8_t *best)
{
    struct window w = first(pool);

    if (is_empty(pool))
        return;
    do {
        const uint32_t places = pool->kernel * pool->kernel;
        uint32_t where = places;
        float max = 0.0F;
        size_t at;

        for (uint32_t k = 0; k < places; k++) {
            float value;

            if (!in_at(&w, k, &at))
                continue;
            value = values_get(x, pool->type, at);
            if (where == places || value > max || isnan(value)) {
                max = value;
                where = k;
            }
        }
        assert(where < places); /* every window covers at least one pixel */
        values_set(y, pool->type, out_at(&w), max);
        if (best != NULL)
            best[out_at(&w)] = (uint8_t)where;
    } while (next(&w));
}

void kernel_max_pool_backward_ref(const struct kernel_pool *pool, const void *dy,
                                  const uint8_t *best, void *dx)
{
    const size_t count = (size_t)pool->images * pool->height * pool->width * pool->channels;
    float *sums = calloc(count + 1, sizeof *sums);
    struct window w = first(pool);

    assert(sums != NULL);
    if (!is_empty(pool))
        do {
            size_t at;

            assert(best[out_at(&w)] < pool->kernel * pool->kernel);
            if (in_at(&w, best[out_at(&w)], &at))
                sums[at] += values_get(dy, pool->type, out_at(&w));
        } while (next(&w));
    for (size_t i = 0; i < count; i++)
        values_set(dx, pool->type, i, sums[i]);
    free(sums);
}
