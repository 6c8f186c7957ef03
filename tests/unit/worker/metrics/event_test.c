/* Records of event files: byte for byte as TensorBoard's own writer makes them
 * (tensorboard 2.21, RecordWriter on event_pb2.Event), CRC-32C, histograms. */
#include "worker/metrics/event.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/event_reader.h"
#include "tests/lib/test.h"
#include "worker/metrics/crc32c.h"
#include "worker/metrics/histogram.h"
#include "worker/metrics/picture_png.h"

static void check_hex(const struct buf *buf, const char *hex)
{
    char text[1024] = "";

    CHECK(!buf->failed && 2 * buf->byte_count < sizeof text);
    for (size_t i = 0; i < buf->byte_count; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", (unsigned char)buf->bytes[i]);
    CHECK_STR(text, hex);
}

TEST(crc_of_the_rfc)
{
    uint8_t bytes[32];

    /* RFC 3720, B.4 */
    CHECK_EQ(crc32c("123456789", 9), 0xE3069283u);
    memset(bytes, 0, sizeof bytes);
    CHECK_EQ(crc32c(bytes, sizeof bytes), 0x8A9136AAu);
    memset(bytes, 0xff, sizeof bytes);
    CHECK_EQ(crc32c(bytes, sizeof bytes), 0x62A8AB43u);
    CHECK_EQ(crc32c(bytes, 0), 0u);
}

TEST(instruction_and_table_agree)
{
    uint8_t bytes[300];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37 + i / 7);
    for (size_t at = 0; at < 9; at++)
        for (size_t n = 0; n + at <= sizeof bytes; n++)
            CHECK_EQ(crc32c(bytes + at, n), crc32c_table(bytes + at, n));
}

TEST(version)
{
    struct buf buf = {0};

    event_put_version(&buf, 1.5);
    check_hex(&buf, "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a286"
                    "46c");
    buf_free(&buf);
}

TEST(start_of_a_session)
{
    struct buf buf = {0};

    event_put_start(&buf, 1.5, 301);
    check_hex(&buf, "100000000000000095fbfe1809000000000000f83f10ad023a020801d17949d4");
    buf_free(&buf);
}

TEST(scalars)
{
    const struct event_value values[] = {{.tag = "Loss/train", .scalar = 0.25},
                                         {.tag = "Lr", .scalar = -1}};
    struct buf buf = {0};

    event_put_values(&buf, 1.5, 300, values, 2);
    check_hex(&buf, "2c00000000000000f4aecc4509000000000000f83f10ac022a1e0a110a0a4c6f73732f74726169"
                    "6e150000803e0a090a024c7215000080bf05bc2fd1");
    buf_free(&buf);
}

TEST(histogram_and_image)
{
    static const double limits[] = {-0.5, 1, 3}, counts[] = {1, 1, 1};
    const struct event_histogram histogram = {-1, 2, 3, 1.5, 5.25, limits, counts, 3};
    const struct event_image image = {
        .height = 2, .width = 3, .channels = 1, .png = "png!", .byte_count = 4};
    const struct event_value values[] = {{.tag = "h", .histogram = &histogram},
                                         {.tag = "i", .image = &image}};
    struct buf buf = {0};

    event_put_values(&buf, 1.5, 7, values, 2);
    check_hex(
        &buf,
        "8800000000000000fcdeece209000000000000f83f10072a7b0a660a01682a6109000000000000f0bf11"
        "000000000000004019000000000000084021000000000000f83f2900000000000015403218000000000000"
        "e0bf000000000000f03f00000000000008403a18000000000000f03f000000000000f03f000000000000f0"
        "3f0a110a0169220c0802100318012204706e6721599615cc");
    buf_free(&buf);
}

/* A file that was cut anywhere: all records before the cut, no error. */
TEST(a_cut_file_has_its_whole_records)
{
    const struct event_value value = {.tag = "Lr", .scalar = 0.5};
    struct buf buf = {0};
    struct event_seen seen;
    struct err err;
    size_t ends[4] = {0};

    for (uint32_t i = 0; i < 4; i++) {
        event_put_values(&buf, 1.0, i, &value, 1);
        ends[i] = buf.byte_count;
    }
    for (size_t cut = 0; cut <= buf.byte_count; cut++) {
        size_t at = 0, count = 0;
        bool found = true;

        while (found) {
            CHECK_EQ(event_read((const uint8_t *)buf.bytes, cut, &at, &seen, &found, &err),
                     STATUS_OK);
            count += found ? 1 : 0;
        }
        for (size_t i = 0; i < 4; i++)
            CHECK_EQ(count > i, cut >= ends[i]);
    }
    buf_free(&buf);
}

TEST(a_flipped_bit_is_named)
{
    const struct event_value value = {.tag = "Lr", .scalar = 0.5};
    struct buf buf = {0};
    struct event_seen seen;

    event_put_values(&buf, 1.0, 1, &value, 1);
    for (size_t i = 0; i < buf.byte_count; i++) {
        struct err err = {.text = ""};
        size_t at = 0;
        bool found;

        buf.bytes[i] ^= 0x10;
        CHECK_EQ(event_read((const uint8_t *)buf.bytes, buf.byte_count, &at, &seen, &found, &err),
                 STATUS_BAD_INPUT);
        CHECK(strstr(err.text, "at byte 0: the CRC") != NULL && !found);
        buf.bytes[i] ^= 0x10;
    }
    buf_free(&buf);
}

TEST(buckets_hold_every_value_once)
{
    static const float values[] = {0,      1e-13F, -1e-13F,  1,    1.05F, -3,       1e30F,
                                   -1e30F, NAN,    INFINITY, 0.5F, 1,     -INFINITY};
    struct histogram *histogram = malloc(sizeof *histogram);
    struct event_histogram event;
    double sum = 0;

    CHECK(histogram != NULL);
    histogram_init(histogram);
    histogram_count(histogram, values, sizeof values / sizeof values[0]);
    event = histogram_event(histogram);
    CHECK_EQ((int)event.count, 10);
    CHECK(event.min == (double)-1e30F && event.max == (double)1e30F);
    for (size_t i = 0; i < event.bucket_count; i++) {
        CHECK(i == 0 || event.limits[i - 1] < event.limits[i]);
        sum += event.counts[i];
    }
    CHECK(sum == 10.0);
    free(histogram);
}

/* [-1, 2): the buckets begin at the limit below -1 and end at the one above 2, and the limits in
 * between are 10 % apart. */
TEST(buckets_lie_around_their_values)
{
    struct histogram *histogram = malloc(sizeof *histogram);
    struct event_histogram event;
    float values[300];

    CHECK(histogram != NULL);
    for (int i = 0; i < 300; i++)
        values[i] = (float)i / 100.0F - 1.0F;
    histogram_init(histogram);
    histogram_count(histogram, values, 300);
    event = histogram_event(histogram);
    CHECK(event.counts[0] == 0.0 && event.limits[0] <= -1.0 && event.limits[0] > -1.1);
    CHECK(event.limits[event.bucket_count - 1] > 1.99);
    CHECK(event.limits[event.bucket_count - 1] <= 1.99 * 1.1);
    CHECK_NEAR(event.sum, 148.5, 1e-3);
    free(histogram);
}

/* A limit is the first value that is not in its bucket. */
TEST(a_value_on_a_limit)
{
    static const float zero = 0.0F;
    struct histogram *histogram = malloc(sizeof *histogram);
    struct event_histogram event;

    CHECK(histogram != NULL);
    histogram_init(histogram);
    histogram_count(histogram, &zero, 1);
    event = histogram_event(histogram);
    CHECK_EQ(event.bucket_count, 2);
    CHECK(event.limits[0] == 0.0 && event.counts[0] == 0.0);
    CHECK(event.limits[1] == 1e-12 && event.counts[1] == 1.0);
    free(histogram);
}

TEST(nothing_counted)
{
    struct histogram *histogram = malloc(sizeof *histogram);
    struct event_histogram event;

    CHECK(histogram != NULL);
    histogram_init(histogram);
    event = histogram_event(histogram);
    CHECK(event.min == 0.0 && event.max == 0.0 && event.count == 0.0);
    CHECK(event.bucket_count >= 1);
    free(histogram);
}

TEST(png_is_one)
{
    static const uint8_t signature[] = {0x89, 'P', 'N', 'G', 0x0d, 0x0a, 0x1a, 0x0a};
    uint8_t pixels[5 * 7 * 3];
    struct buf png = {0};
    struct err err;

    memset(pixels, 200, sizeof pixels);
    CHECK_EQ(metrics_png(&png, pixels, 5, 7, 3, &err), STATUS_OK);
    CHECK(png.byte_count > 33);
    CHECK_BYTES(png.bytes, signature, sizeof signature);
    CHECK_EQ(png.bytes[19], 7); /* width */
    CHECK_EQ(png.bytes[23], 5); /* height */
    CHECK_EQ(png.bytes[24], 8); /* bits */
    CHECK_EQ(png.bytes[25], 2); /* RGB */
    buf_free(&png);
}

TEST_MAIN
