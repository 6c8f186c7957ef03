/* Streams to the c10d store. The first byte is how long the pieces are; the rest goes to one client whole and to another
 * one's store in pieces: the same replies, the same end, all memory freed. */
#include <string.h>

#include "tests/fuzz/target.h"
#include "tests/lib/c10d_tools.h"

static const struct c10d_limits limits = {.clients_max = 4,
                                          .keys_max = 64,
                                          .bytes_max = 1u << 20,
                                          .message_bytes_max = 1u << 16,
                                          .hello_us = 1000,
                                          .hash_seed = {3, 4}};

static void begin(struct buf *buf, char piece)
{
    buf->byte_count = 0;
    buf_add(buf, &piece, 1);
    request_add(buf, 0, "4", 0x3C85F7CEu);
}

void fuzz_corpus(fuzz_add *add)
{
    struct buf buf = {0};

    for (char piece = 0; piece < 20; piece++) {
        begin(&buf, piece);
        request_add(&buf, 13, "4", 1u);
        request_add(&buf, 1, "kb", "/a", "value");
        request_add(&buf, 2, "kbb", "/a", "value", "");
        request_add(&buf, 4, "k8", "/n", (uint64_t)piece);
        request_add(&buf, 3, "k", "/a");
        request_add(&buf, 10, "nkk", UINT64_C(2), "/a", "/n");
        add(buf.bytes, buf.byte_count);
        begin(&buf, piece);
        request_add(&buf, 9, "kb", "/a", "value");
        request_add(&buf, 11, "nkbkb", UINT64_C(2), "/b", "x", "/c", "");
        request_add(&buf, 6, "nkk", UINT64_C(2), "/q", "/d");
        request_add(&buf, 14, "kb", "/q", "item");
        request_add(&buf, 5, "nk", UINT64_C(1), "/q");
        request_add(&buf, 12, "");
        request_add(&buf, 15, "k", "/q");
        add(buf.bytes, buf.byte_count);
        begin(&buf, piece);
        request_add(&buf, 14, "kb", "/q", "item");
        request_add(&buf, 16, "k", "/q");
        request_add(&buf, 18, "k8", "/bar", UINT64_C(2));
        request_add(&buf, 18, "k8", "/bar", UINT64_C(2));
        request_add(&buf, 8, "k", "/bar");
        request_add(&buf, 7, "");
        request_add(&buf, 17, "");
        add(buf.bytes, buf.byte_count);
        buf.byte_count = 0;
        buf_add(&buf, &piece, 1);
        buf_add_text(
            &buf, "PUT /s/0 HTTP/1.1\r\nHost: h\r\ncontent-length: 3\r\n\r\nabc"
                  "GET /s/0 HTTP/1.1\r\n\r\nGET /s/1 HTTP/1.0\n\n"
                  "DELETE /s/0 HTTP/1.1\r\n\r\nGET /s/0 HTTP/1.1\r\n\r\n"
                  "GET /s HTTP/1.1\r\n\r\nPUT /s/1 HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n");
        add(buf.bytes, buf.byte_count);
    }
    buf_free(&buf);
}

static void run(struct c10d_tools *tools, const uint8_t *bytes, size_t byte_count, size_t piece)
{
    tools_open(tools, &limits);
    tools_connect(tools, 0);
    for (size_t at = 0; at < byte_count && tools->is_open[0];) {
        const size_t count = byte_count - at < piece ? byte_count - at : piece;

        tools_send(tools, 0, bytes + at, count);
        at += count;
        while (tools->is_open[0] && tools->is_paused[0])
            tools_event(tools, C10D_EVENT_DRAINED, 0);
        FUZZ_CHECK(c10d_totals(tools->core).bytes <= limits.bytes_max);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    static struct c10d_tools whole, pieces; /* too big for the stack */

    if (byte_count == 0)
        return 0;
    run(&whole, data + 1, byte_count - 1, byte_count);
    run(&pieces, data + 1, byte_count - 1, 1 + data[0] % 16);
    FUZZ_CHECK(whole.is_open[0] == pieces.is_open[0]);
    FUZZ_CHECK(whole.is_open[0] || whole.reason[0] == pieces.reason[0]);
    FUZZ_CHECK(whole.got[0].byte_count == pieces.got[0].byte_count);
    FUZZ_CHECK(whole.got[0].byte_count == 0 ||
               memcmp(whole.got[0].bytes, pieces.got[0].bytes, whole.got[0].byte_count) == 0);
    tools_close(&whole);
    tools_close(&pieces);
    return 0;
}
