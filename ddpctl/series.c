#include "ddpctl/series.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define STEP_MAX 1e15   /* so that differences of steps are finite */
#define VALUE_MAX 1e300 /* so that ranges of values are finite */

bool series_add(struct series *series, double step, double value)
{
    if (!(fabs(step) <= STEP_MAX) || !(fabs(value) <= VALUE_MAX) ||
        (series->count > 0 && step < series->points[series->count - 1].step))
        return true;
    if (series->count == SERIES_POINTS_MAX)
        series_reduce(series, SERIES_POINTS_MAX / 4);
    if (series->count == series->capacity) {
        uint32_t capacity = series->capacity > 0 ? series->capacity * 2 : 256;
        struct series_point *points = realloc(series->points, capacity * sizeof *points);

        if (points == NULL)
            return false;
        series->points = points;
        series->capacity = capacity;
    }
    series->points[series->count++] = (struct series_point){step, value};
    return true;
}

void series_drop_after(struct series *series, double step)
{
    while (series->count > 0 && series->points[series->count - 1].step > step)
        series->count--;
}

/* Copies the lowest and the highest of the points [first, end) to index `kept`, in their order.
 * Returns the new end. */
static uint32_t keep_extremes(struct series_point *points, uint32_t first, uint32_t end,
                              uint32_t kept)
{
    uint32_t low = first, high = first;
    struct series_point a, b;

    for (uint32_t i = first; i < end; i++) {
        if (points[i].value < points[low].value)
            low = i;
        if (points[i].value > points[high].value)
            high = i;
    }
    a = points[low < high ? low : high];
    b = points[low < high ? high : low];
    points[kept++] = a;
    if (low != high)
        points[kept++] = b;
    return kept;
}

void series_reduce(struct series *series, uint32_t buckets)
{
    struct series_point *points = series->points;
    uint32_t kept = 0, first = 0;
    double begin, width;

    assert(buckets > 0);
    if (series->count <= 2 * buckets)
        return;
    begin = points[0].step;
    width = (points[series->count - 1].step - begin) / buckets;
    for (uint32_t i = 1; i <= series->count; i++) {
        if (i < series->count && (width <= 0 || floor((points[i].step - begin) / width) ==
                                                    floor((points[first].step - begin) / width)))
            continue;
        kept = keep_extremes(points, first, i, kept);
        first = i;
    }
    series->count = kept;
}

void series_free(struct series *series)
{
    free(series->points);
    *series = (struct series){0};
}
