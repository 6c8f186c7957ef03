/* The tests' reader of event files: refused with a place, or every record is within the bytes; and
 * what the writer makes is read back. */
#include <math.h>
#include <string.h>

#include "tests/fuzz/target.h"
#include "tests/lib/event_reader.h"
#include "worker/metrics/event.h"

static struct event_seen seen;

static void put_examples(struct buf *buf, uint32_t kind)
{
    static const double limits[] = {-1, 0, 1}, counts[] = {1, 2, 3};
    const struct event_histogram histogram = {-2, 1, 6, 0.5, 8, limits, counts, 3};
    const struct event_image image = {
        .height = 1, .width = 2, .channels = 3, .png = "not a PNG", .byte_count = 9};
    const struct event_value values[] = {{.tag = "Loss/train", .scalar = 0.5},
                                         {.tag = "Parameters/fc.weight", .histogram = &histogram},
                                         {.tag = "Images/0", .image = &image}};

    event_put_version(buf, 1.0);
    event_put_start(buf, 1.0, 1u << kind);
    event_put_values(buf, 2.0, kind, values, kind % 4);
}

void fuzz_corpus(fuzz_add *add)
{
    for (uint32_t i = 0; i < 600; i++) { /* more than there are broken inputs of messages */
        struct buf buf = {0};

        put_examples(&buf, i % 31);
        add(buf.bytes, buf.byte_count);
        buf_free(&buf);
    }
}

static void check(const uint8_t *data, size_t byte_count)
{
    FUZZ_CHECK(seen.value_count <= EVENT_VALUES_MAX);
    for (size_t i = 0; i < seen.value_count; i++) {
        const struct event_seen_value *value = &seen.values[i];

        FUZZ_CHECK(memchr(value->tag, '\0', sizeof value->tag) != NULL);
        FUZZ_CHECK(value->png_bytes == 0 || (value->png >= data && value->png_bytes <= byte_count &&
                                             value->png <= data + byte_count - value->png_bytes));
    }
}

/* Records as they are; then the bytes as one record's event, with good CRCs, so that mutations get
 * past those. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    struct err err = {.text = ""};
    struct buf framed = {0};
    size_t at = 0;
    bool found = true;

    while (found) {
        const size_t before = at;
        const enum status status = event_read(data, byte_count, &at, &seen, &found, &err);

        FUZZ_CHECK(status == STATUS_OK || strstr(err.text, "at byte ") != NULL);
        FUZZ_CHECK(found ? at > before && at <= byte_count : at == before);
        if (found)
            check(data, byte_count);
    }
    event_put_record(&framed, data, byte_count);
    at = 0;
    if (!framed.failed && event_read((const uint8_t *)framed.bytes, framed.byte_count, &at, &seen,
                                     &found, &err) == STATUS_OK) {
        FUZZ_CHECK(found && at == framed.byte_count);
        check((const uint8_t *)framed.bytes, framed.byte_count);
    }
    buf_free(&framed);
    return 0;
}
