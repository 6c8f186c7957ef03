#include "worker/metrics/histogram.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

void histogram_init(struct histogram *histogram)
{
    const size_t zero = HISTOGRAM_SIDE_MAX;
    double limit = 1e-12;

    *histogram =
        (struct histogram){.limit_count = 2 * zero + 1, .sums = {.min = DBL_MAX, .max = -DBL_MAX}};
    for (size_t i = 1; i < zero; i++) {
        histogram->limits[zero + i] = limit;
        histogram->limits[zero - i] = -limit;
        limit *= 1.1;
    }
    histogram->limits[2 * zero] = DBL_MAX;
    histogram->limits[0] = -DBL_MAX;
}

/* The first limit that is greater than `value`. */
static size_t bucket_of(const struct histogram *histogram, double value)
{
    size_t low = 0, high = histogram->limit_count - 1;

    while (low < high) {
        const size_t middle = (low + high) / 2;

        if (histogram->limits[middle] > value)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void histogram_count(struct histogram *histogram, const float *values, size_t count)
{
    struct event_histogram *sums = &histogram->sums;

    for (size_t i = 0; i < count; i++) {
        const double value = (double)values[i];

        if (!isfinite(value))
            continue;
        histogram->counts[bucket_of(histogram, value)] += 1.0;
        sums->min = fmin(sums->min, value);
        sums->max = fmax(sums->max, value);
        sums->count += 1.0;
        sums->sum += value;
        sums->sum_squares += value * value;
    }
}

struct event_histogram histogram_event(const struct histogram *histogram)
{
    struct event_histogram event = histogram->sums;
    size_t first = 0, last = histogram->limit_count - 1;

    if (event.count == 0.0)
        event.min = event.max = 0.0;
    while (first < last && histogram->counts[first] == 0.0)
        first++;
    while (last > first && histogram->counts[last] == 0.0)
        last--;
    first -= first > 0;
    event.limits = histogram->limits + first;
    event.counts = histogram->counts + first;
    event.bucket_count = last - first + 1;
    return event;
}
