#include "tests/unit/common/msg_tools.h"

#include <string.h>

#include "common/frame.h"
#include "tests/fuzz/msg_random.h"
#include "tests/lib/test.h"

struct arena made, got;
struct buf out, again;

void clean(void)
{
    arena_reset(&made);
    arena_reset(&got);
    buf_free(&out);
    buf_free(&again);
}

void *field_of(struct msg *msg, const struct msg_field *field)
{
    return (char *)msg + MSG_BODY_OFFSET + field->offset;
}

void make(uint64_t seed, enum msg_type type, struct msg *msg)
{
    struct random random = {.state = seed};

    msg_random(&random, &made, type, msg);
}

void make_with_parts(enum msg_type type, struct msg *msg)
{
    const struct msg_shape *shape = msg_shape(type);

    make(7, type, msg);
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const struct msg_field *field = &shape->fields[i];
        struct msg_list list;
        struct msg filled;

        if (field->kind != MSG_KIND_LIST)
            continue;
        for (uint64_t seed = 1;; seed++) {
            make(seed, type, &filled);
            memcpy(&list, field_of(&filled, field), sizeof list);
            if (list.count > 0)
                break;
        }
        list.count = 1;
        memcpy(field_of(msg, field), &list, sizeof list);
    }
}

void check_round_trip(const struct msg *msg)
{
    struct err err = {.text = ""};
    struct msg decoded;
    size_t payload_bytes;
    const char *payload;

    buf_free(&out);
    buf_free(&again);
    if (msg_encode(msg, &out, &err) != STATUS_OK)
        FAIL("encode: %s", err.text);
    CHECK_EQ(frame_next(out.bytes, out.byte_count, FRAME_LARGE_BYTES_MAX, &payload, &payload_bytes,
                        &err),
             STATUS_OK);
    CHECK_EQ(payload_bytes + FRAME_HEAD_BYTES, out.byte_count);
    if (msg_decode(payload, payload_bytes, &got, &decoded, &err) != STATUS_OK)
        FAIL("decode: %s\n%.*s", err.text, (int)payload_bytes, payload);
    CHECK_EQ(decoded.type, msg->type);
    if (msg_encode(&decoded, &again, &err) != STATUS_OK)
        FAIL("encode again: %s", err.text);
    CHECK_EQ(again.byte_count, out.byte_count);
    CHECK_BYTES(again.bytes, out.bytes, out.byte_count);
    arena_reset(&got);
}

void set_integer(const struct msg_field *field, uint64_t bits, void *at)
{
    if (field->kind == MSG_KIND_U32 || field->kind == MSG_KIND_I32)
        *(uint32_t *)at = (uint32_t)bits;
    else
        *(uint64_t *)at = bits;
}
