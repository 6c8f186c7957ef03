/* A reader of TensorBoard's event files, for tests. Written from event.proto and summary.proto,
 * independently of the writer. The bytes may be anything: it never reads outside them. */
#ifndef TESTS_LIB_EVENT_READER_H
#define TESTS_LIB_EVENT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

enum { EVENT_VALUES_MAX = 64, EVENT_TEXT_BYTES = 128 };

struct event_seen_value {
    char tag[EVENT_TEXT_BYTES];
    bool is_histogram, is_image; /* else a scalar */
    float scalar;
    double min, max, count, sum, sum_squares;
    size_t limit_count, bucket_count;
    double bucket_sum;  /* of all buckets */
    bool limits_ascend; /* strictly */
    uint64_t height, width, channels;
    const uint8_t *png; /* in the bytes that were given */
    size_t png_bytes;
};

struct event_seen {
    double time_s;
    uint64_t step;
    char version[EVENT_TEXT_BYTES]; /* "": none */
    uint64_t session;               /* SessionLog.status; 0: none */
    struct event_seen_value values[EVENT_VALUES_MAX];
    size_t value_count;
};

/* Reads the record at `*at` of a file's bytes and moves `*at` past it. `*found` is false at the end
 * and if the last record is incomplete: then `*at` stays in front of it. Errors: STATUS_BAD_INPUT
 * (a wrong CRC, or bytes that are no event; err names the offset), STATUS_TOO_BIG (over the limits
 * above). */
enum status event_read(const uint8_t *bytes, size_t byte_count, size_t *at, struct event_seen *seen,
                       bool *found, struct err *err);

#endif
