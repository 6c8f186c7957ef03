/* What libddp reads from its shim: it takes every world and every stop that the codec of the programs takes, with the same
 * values, and nothing that is no JSON object. */
#include <string.h>

#include "common/arena.h"
#include "common/msg.h"
#include "libddp/wire.h"
#include "tests/fuzz/target.h"

static void check_same(const struct msg *msg, const struct wire_message *message)
{
    switch (msg->type) {
    case MSG_TYPE_WORLD:
        FUZZ_CHECK(message->kind == WIRE_WORLD && message->job_id == msg->world.job_id &&
                   message->generation == msg->world.generation &&
                   message->blob_bytes == msg->world.blob.count);
        FUZZ_CHECK(message->blob_bytes == 0 ||
                   memcmp(message->blob, msg->world.blob.items, message->blob_bytes) == 0);
        break;
    case MSG_TYPE_WORKER_STOP:
        FUZZ_CHECK(message->kind == WIRE_STOP &&
                   message->kill_at_us == msg->worker_stop.kill_at_us);
        break;
    default: /* of the many others none is a worker's */
        FUZZ_CHECK(message->kind == WIRE_OTHER);
    }
}

/* 12.0 or 1e3, which only the codec reads: nobody writes an integer so. */
static bool has_real_number(const char *json, size_t byte_count)
{
    bool is_text = false;

    for (size_t i = 0; i < byte_count; i++) {
        is_text ^= json[i] == '"';
        if (!is_text && i > 0 && json[i - 1] >= '0' && json[i - 1] <= '9' &&
            (json[i] == '.' || json[i] == 'e' || json[i] == 'E'))
            return true;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    const char *json = (const char *)data;
    struct wire_message message = {.kind = WIRE_OTHER};
    struct err err = {.text = ""}, other = {.text = ""};
    struct arena arena = {0};
    struct msg msg;
    const enum status status = wire_decode(json, byte_count, &message, &err);

    FUZZ_CHECK((status == STATUS_OK) == (err.text[0] == '\0'));
    FUZZ_CHECK(status != STATUS_OK || (byte_count >= 2 && json[0] == '{'));
    FUZZ_CHECK(message.blob_bytes <= BLOB_BYTES_MAX);
    /* where keys have no escapes, which only the codec reads */
    if (memchr(json, '\\', byte_count) == NULL && !has_real_number(json, byte_count) &&
        msg_decode(json, byte_count, &arena, &msg, &other) == STATUS_OK && json[0] == '{') {
        FUZZ_CHECK(status == STATUS_OK);
        check_same(&msg, &message);
    }
    arena_reset(&arena);
    return 0;
}
