/* A stream cut into frames: nothing is read outside it, every frame is within the cap, its head is
 * the one that we would write, and a stream that comes in pieces is cut alike. The first byte picks
 * the cap. */
#include <string.h>

#include "common/frame.h"
#include "tests/fuzz/target.h"

/* Whether every shorter piece of one frame asks for more. */
static void check_pieces(const char *frame, size_t byte_count, size_t payload_max)
{
    const char *payload;
    size_t payload_bytes, step = byte_count / 16 + 1;
    struct err err;

    for (size_t i = 0; i < byte_count; i += step)
        FUZZ_CHECK(frame_next(frame, i, payload_max, &payload, &payload_bytes, &err) ==
                   STATUS_BUSY);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    const char *bytes = (const char *)data, *payload = NULL;
    size_t payload_bytes = 0, payload_max, left, frame_bytes;
    struct err err = {.text = ""};
    char head[FRAME_HEAD_BYTES];
    enum status status;

    if (byte_count == 0)
        return 0;
    payload_max = (size_t)1 << (data[0] % 22);
    bytes++;
    for (left = byte_count - 1;; left -= frame_bytes, bytes += frame_bytes) {
        status = frame_next(bytes, left, payload_max, &payload, &payload_bytes, &err);
        if (status != STATUS_OK)
            break;
        frame_bytes = FRAME_HEAD_BYTES + payload_bytes;
        FUZZ_CHECK(payload == bytes + FRAME_HEAD_BYTES);
        FUZZ_CHECK(payload_bytes >= 1 && payload_bytes <= payload_max && frame_bytes <= left);
        frame_head(payload_bytes, head);
        FUZZ_CHECK(memcmp(head, bytes, sizeof head) == 0);
        check_pieces(bytes, frame_bytes, payload_max);
    }
    FUZZ_CHECK(status == STATUS_BUSY || status == STATUS_TOO_BIG || status == STATUS_BAD_INPUT);
    FUZZ_CHECK(status == STATUS_BUSY || err.text[0] != '\0');
    return 0;
}
