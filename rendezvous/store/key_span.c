#include "rendezvous/store/key_span.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DIGITS 16u
#define GROWTH 4u

/* The length of "TABLE/", before the number. */
static size_t table_bytes(const struct key_span *span, struct etcd_bytes key)
{
    const char *slash = key.byte_count > span->skip
                            ? memchr(key.bytes + span->skip, '/', key.byte_count - span->skip)
                            : NULL;

    return slash != NULL ? (size_t)(slash + 1 - key.bytes) : 0;
}

static bool read_number(struct etcd_bytes key, size_t at, uint64_t *number)
{
    *number = 0;
    if (at == 0 || key.byte_count - at < DIGITS)
        return false;
    for (size_t i = at; i < at + DIGITS; i++) {
        char c = key.bytes[i];

        if (c >= '0' && c <= '9')
            *number = *number << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            *number = *number << 4 | (uint64_t)(c - 'a' + 10);
        else
            return false;
    }
    return true;
}

static bool is_before(struct etcd_bytes a, struct etcd_bytes b)
{
    size_t both = a.byte_count < b.byte_count ? a.byte_count : b.byte_count;
    int order = memcmp(a.bytes, b.bytes, both);

    return order < 0 || (order == 0 && a.byte_count < b.byte_count);
}

struct etcd_bytes key_span_end(const struct key_span *span, struct etcd_bytes from,
                               struct etcd_bytes to, char *text, size_t text_bytes)
{
    size_t at = table_bytes(span, from);
    struct etcd_bytes end = {text, at};
    uint64_t number;

    assert(from.byte_count + KEY_SPAN_BYTES_MORE <= text_bytes);
    if (at == 0 || span->width == 0)
        return to;
    memcpy(text, from.bytes, at);
    if (read_number(from, at, &number) && number <= UINT64_MAX - span->width) {
        (void)snprintf(text + at, text_bytes - at, "%016" PRIx64, number + span->width);
        end.byte_count = at + DIGITS;
    } else {
        text[at - 1] = '/' + 1; /* the end of this table */
    }
    return is_before(end, to) ? end : to;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

void key_span_learn(struct key_span *span, struct etcd_bytes from, struct etcd_bytes last,
                    uint32_t count, uint32_t limit, bool has_more)
{
    size_t at = table_bytes(span, from);
    uint64_t begin, end;

    if (!has_more) {
        if (count <= limit / 2) /* also where the limit is 1 */
            span->width = times(span->width, GROWTH);
    } else if (at != 0 && table_bytes(span, last) == at &&
               memcmp(from.bytes, last.bytes, at) == 0 && read_number(from, at, &begin) &&
               read_number(last, at, &end) && count > 0) {
        span->width = times((end - begin) / count + 1, limit);
    } else {
        span->width = limit; /* one for each key */
    }
}
