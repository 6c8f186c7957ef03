/* Values counted in TensorFlow's default buckets: 0, and from 1e-12 each limit 1.1 x the one before, on both
 * sides of 0. Source: tensorflow/core/lib/histogram/histogram.cc, InitDefaultBucketsInner. */
#ifndef WORKER_METRICS_HISTOGRAM_H
#define WORKER_METRICS_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "worker/metrics/event.h"

enum { HISTOGRAM_SIDE_MAX = 775 }; /* limits on one side: 1e-12 * 1.1^774 > 1e20 */

struct histogram {
    double limits[2 * HISTOGRAM_SIDE_MAX + 1]; /* ascending; the middle one is 0 */
    double counts[2 * HISTOGRAM_SIDE_MAX + 1];
    size_t limit_count;
    struct event_histogram sums; /* without its arrays */
};

void histogram_init(struct histogram *histogram);
/* Values that are not finite are left out. */
void histogram_count(struct histogram *histogram, const float *values, size_t count);
/* Without the empty buckets at both ends, but for one on the left, whose limit is where the first
 * begins. Points into `histogram`. Nothing was counted: one empty bucket. */
struct event_histogram histogram_event(const struct histogram *histogram);

#endif
