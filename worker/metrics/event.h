/* Records of TensorBoard's event files, as TensorFlow writes them: a protocol buffer `Event` each
 * (tensorflow/core/util/event.proto and summary.proto), framed as a TFRecord:
 *
 *     u64 byte count | u32 masked CRC-32C of it | bytes | u32 masked CRC-32C of them
 *
 * little-endian. Pure: bytes are added to a buffer. */
#ifndef WORKER_METRICS_EVENT_H
#define WORKER_METRICS_EVENT_H

#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"

struct event_histogram {
    double min, max, count, sum, sum_squares;
    const double *limits; /* [bucket_count], ascending: the upper ends */
    const double *counts; /* [bucket_count] */
    size_t bucket_count;
};

struct event_image {
    uint32_t height, width;
    uint32_t channels; /* 1: grey, 3: RGB */
    const void *png;
    size_t byte_count;
};

/* One of the three: */
struct event_value {
    const char *tag;
    double scalar; /* where both pointers are NULL */
    const struct event_histogram *histogram;
    const struct event_image *image;
};

/* A record of these bytes. */
void event_put_record(struct buf *buf, const void *bytes, size_t byte_count);

/* Adds a record each.
 *   time_s: wall clock, seconds since 1970 */
/* The first record of a file. */
void event_put_version(struct buf *buf, double time_s);
/* SessionLog START: a reader drops what older files have of `step` and later. */
void event_put_start(struct buf *buf, double time_s, uint64_t step);
void event_put_values(struct buf *buf, double time_s, uint64_t step,
                      const struct event_value *values, size_t count);

#endif
