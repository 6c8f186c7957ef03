#include "worker/metrics/event.h"

#include <assert.h>
#include <string.h>

#include "worker/metrics/crc32c.h"

/* Numbers of the fields in event.proto and summary.proto. */
enum {
    EVENT_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION = 7,

    SESSION_STATUS = 1,
    SESSION_START = 1, /* the value of the status */

    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    VALUE_IMAGE = 4,
    VALUE_HISTOGRAM = 5,

    IMAGE_HEIGHT = 1,
    IMAGE_WIDTH = 2,
    IMAGE_COLORSPACE = 3,
    IMAGE_ENCODED = 4,

    HISTOGRAM_MIN = 1,
    HISTOGRAM_MAX = 2,
    HISTOGRAM_NUM = 3,
    HISTOGRAM_SUM = 4,
    HISTOGRAM_SUM_SQUARES = 5,
    HISTOGRAM_LIMIT = 6,
    HISTOGRAM_BUCKET = 7,
};

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* -- protocol buffers: https://protobuf.dev/programming-guides/encoding -- */

static void put_varint(struct buf *buf, uint64_t value)
{
    do {
        const uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80u : 0u));

        buf_add(buf, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

static void put_key(struct buf *buf, uint32_t field, enum wire wire)
{
    put_varint(buf, field << 3 | (uint32_t)wire);
}

static void put_little(struct buf *buf, uint64_t value, size_t byte_count)
{
    uint8_t bytes[8];

    assert(byte_count <= sizeof bytes);
    for (size_t i = 0; i < byte_count; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    buf_add(buf, bytes, byte_count);
}

static void put_raw_double(struct buf *buf, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    put_little(buf, bits, sizeof bits);
}

static void put_double(struct buf *buf, uint32_t field, double value)
{
    put_key(buf, field, WIRE_64);
    put_raw_double(buf, value);
}

static void put_float(struct buf *buf, uint32_t field, double value)
{
    const float rounded = (float)value;
    uint32_t bits;

    memcpy(&bits, &rounded, sizeof bits);
    put_key(buf, field, WIRE_32);
    put_little(buf, bits, sizeof bits);
}

static void put_whole(struct buf *buf, uint32_t field, uint64_t value)
{
    put_key(buf, field, WIRE_VARINT);
    put_varint(buf, value);
}

static void put_bytes(struct buf *buf, uint32_t field, const void *bytes, size_t byte_count)
{
    put_key(buf, field, WIRE_BYTES);
    put_varint(buf, byte_count);
    buf_add(buf, bytes, byte_count);
}

/* A message inside another; frees it. */
static void put_message(struct buf *buf, uint32_t field, struct buf *message)
{
    buf->failed = buf->failed || message->failed;
    put_bytes(buf, field, message->bytes, message->byte_count);
    buf_free(message);
}

static void put_doubles(struct buf *buf, uint32_t field, const double *values, size_t count)
{
    put_key(buf, field, WIRE_BYTES);
    put_varint(buf, count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        put_raw_double(buf, values[i]);
}

/* -- records -- */

/* So that the CRC of bytes that contain CRCs stays a good one. */
static uint32_t masked_crc(const void *bytes, size_t byte_count)
{
    const uint32_t crc = crc32c(bytes, byte_count);

    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

void event_put_record(struct buf *buf, const void *bytes, size_t byte_count)
{
    uint8_t length[8];

    for (size_t i = 0; i < sizeof length; i++)
        length[i] = (uint8_t)((uint64_t)byte_count >> (8 * i));
    buf_add(buf, length, sizeof length);
    put_little(buf, masked_crc(length, sizeof length), 4);
    buf_add(buf, bytes, byte_count);
    put_little(buf, masked_crc(bytes, byte_count), 4);
}

/* Frames `event` and frees it. */
static void put_record(struct buf *buf, struct buf *event)
{
    buf->failed = buf->failed || event->failed;
    event_put_record(buf, event->bytes, event->byte_count);
    buf_free(event);
}

void event_put_version(struct buf *buf, double time_s)
{
    static const char version[] = "brain.Event:2";
    struct buf event = {0};

    put_double(&event, EVENT_TIME, time_s);
    put_bytes(&event, EVENT_FILE_VERSION, version, sizeof version - 1);
    put_record(buf, &event);
}

void event_put_start(struct buf *buf, double time_s, uint64_t step)
{
    struct buf event = {0}, session = {0};

    put_double(&event, EVENT_TIME, time_s);
    put_whole(&event, EVENT_STEP, step);
    put_whole(&session, SESSION_STATUS, SESSION_START);
    put_message(&event, EVENT_SESSION, &session);
    put_record(buf, &event);
}

static void put_image(struct buf *value, const struct event_image *image)
{
    struct buf message = {0};

    put_whole(&message, IMAGE_HEIGHT, image->height);
    put_whole(&message, IMAGE_WIDTH, image->width);
    put_whole(&message, IMAGE_COLORSPACE, image->channels);
    put_bytes(&message, IMAGE_ENCODED, image->png, image->byte_count);
    put_message(value, VALUE_IMAGE, &message);
}

static void put_histogram(struct buf *value, const struct event_histogram *histogram)
{
    struct buf message = {0};

    put_double(&message, HISTOGRAM_MIN, histogram->min);
    put_double(&message, HISTOGRAM_MAX, histogram->max);
    put_double(&message, HISTOGRAM_NUM, histogram->count);
    put_double(&message, HISTOGRAM_SUM, histogram->sum);
    put_double(&message, HISTOGRAM_SUM_SQUARES, histogram->sum_squares);
    put_doubles(&message, HISTOGRAM_LIMIT, histogram->limits, histogram->bucket_count);
    put_doubles(&message, HISTOGRAM_BUCKET, histogram->counts, histogram->bucket_count);
    put_message(value, VALUE_HISTOGRAM, &message);
}

void event_put_values(struct buf *buf, double time_s, uint64_t step,
                      const struct event_value *values, size_t count)
{
    struct buf event = {0}, summary = {0};

    for (size_t i = 0; i < count; i++) {
        struct buf value = {0};

        assert(values[i].histogram == NULL || values[i].image == NULL);
        put_bytes(&value, VALUE_TAG, values[i].tag, strlen(values[i].tag));
        if (values[i].histogram != NULL)
            put_histogram(&value, values[i].histogram);
        else if (values[i].image != NULL)
            put_image(&value, values[i].image);
        else
            put_float(&value, VALUE_SIMPLE, values[i].scalar);
        put_message(&summary, SUMMARY_VALUE, &value);
    }
    put_double(&event, EVENT_TIME, time_s);
    put_whole(&event, EVENT_STEP, step);
    put_message(&event, EVENT_SUMMARY, &summary);
    put_record(buf, &event);
}
