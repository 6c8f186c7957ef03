/* What decodes must encode, and decode again to the same message: compared as the bytes that it
 * encodes to. What does not decode must say why, in a line that can be sent. */
#include <string.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/frame.h"
#include "common/msg.h"
#include "common/utf8.h"
#include "tests/fuzz/target.h"

static void check_words(const struct err *err, enum status status)
{
    FUZZ_CHECK(status == STATUS_BAD_INPUT || status == STATUS_TOO_BIG);
    FUZZ_CHECK(err->status == status && err->text[0] != '\0');
    for (size_t i = 0; err->text[i] != '\0'; i++)
        FUZZ_CHECK(!utf8_is_control(err->text + i, strlen(err->text + i)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    struct arena arena = {0}, arena_again = {0};
    struct buf once = {0}, twice = {0};
    struct err err = {.text = ""};
    struct msg msg, again;
    enum status status;

    if (byte_count > FRAME_BYTES_MAX)
        return 0; /* near its cap a message may grow over it: 1e5 becomes 100000 */
    status = msg_decode((const char *)data, byte_count, &arena, &msg, &err);
    if (status != STATUS_OK) {
        check_words(&err, status);
        arena_reset(&arena);
        return 0;
    }
    FUZZ_CHECK(msg_encode(&msg, &once, &err) == STATUS_OK);
    status = msg_decode(once.bytes + FRAME_HEAD_BYTES, once.byte_count - FRAME_HEAD_BYTES,
                        &arena_again, &again, &err);
    FUZZ_CHECK(status == STATUS_OK);
    FUZZ_CHECK(msg_encode(&again, &twice, &err) == STATUS_OK);
    FUZZ_CHECK(once.byte_count == twice.byte_count);
    FUZZ_CHECK(memcmp(once.bytes, twice.bytes, once.byte_count) == 0);
    buf_free(&once);
    buf_free(&twice);
    arena_reset(&arena);
    arena_reset(&arena_again);
    return 0;
}
