/* Messages between neighbouring versions. protocol-1.txt is the schema of version 1, one line a field, as
 * released: what is sent to a peer of that version must have these fields and no others. A later
 * version gets a file of its own when the next one begins:
 *
 *     DDP_PRINT_SCHEMA=1 build/tests/unit/common/test-msg_version > tests/unit/common/protocol-N.txt */
#include "common/msg_version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/frame.h"
#include "tests/lib/test.h"
#include "tests/unit/common/msg_tools.h"

static const char *const kinds[] = {
    [MSG_KIND_U32] = "U32",     [MSG_KIND_I32] = "I32",     [MSG_KIND_F64] = "F64",
    [MSG_KIND_U64] = "U64",     [MSG_KIND_I64] = "I64",     [MSG_KIND_BOOL] = "BOOL",
    [MSG_KIND_TEXT] = "TEXT",   [MSG_KIND_LINE] = "LINE",   [MSG_KIND_NAME] = "NAME",
    [MSG_KIND_TEXTS] = "TEXTS", [MSG_KIND_PAIRS] = "PAIRS", [MSG_KIND_BYTES] = "BYTES",
    [MSG_KIND_ENUM] = "ENUM",   [MSG_KIND_LIST] = "LIST",
};

static void describe_field(struct buf *text, const struct msg_shape *shape,
                           const struct msg_field *field)
{
    buf_printf(text, "%s.%s %s", shape->name, field->name, kinds[field->kind]);
    if (field->kind == MSG_KIND_F64)
        buf_printf(text, " %g %g", field->real_min, field->real_max);
    else if (field->kind == MSG_KIND_LIST)
        buf_printf(text, " %s %llu", field->part()->name, (unsigned long long)field->max);
    else if (field->kind != MSG_KIND_ENUM)
        buf_printf(text, " %lld %llu", (long long)field->min, (unsigned long long)field->max);
    for (uint32_t i = 0; field->kind == MSG_KIND_ENUM && i < field->names->count; i++)
        buf_printf(text, " %s", field->names->items[i]);
    buf_printf(text, "\n");
}

static void describe_shape(struct buf *text, const struct msg_shape *shape, uint32_t version)
{
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const struct msg_field *field = &shape->fields[i];

        if (msg_field_since(shape->name, field->name) > version)
            continue;
        describe_field(text, shape, field);
        if (field->kind == MSG_KIND_LIST)
            describe_shape(text, field->part(), version);
    }
}

static void describe_version(struct buf *text, uint32_t version)
{
    for (uint32_t i = 0; i < MSG_TYPE_COUNT; i++) {
        const struct msg_shape *shape = msg_shape((enum msg_type)i);

        if (msg_type_since((enum msg_type)i) > version)
            continue;
        buf_printf(text, "%s %zu\n", shape->name, shape->frame_bytes_max);
        describe_shape(text, shape, version);
    }
}

TEST(the_version_before_is_as_it_was_released)
{
    struct buf now = {0}, then = {0};
    char path[64], chunk[4096];
    size_t count;
    FILE *file;

    if (getenv("DDP_PRINT_SCHEMA") != NULL) {
        describe_version(&now, PROTOCOL_VERSION);
        (void)printf("%.*s", (int)now.byte_count, now.bytes);
        exit(0);
    }
    (void)snprintf(path, sizeof path, "tests/unit/common/protocol-%d.txt", PROTOCOL_VERSION - 1);
    file = fopen(test_source(path), "r");
    if (file == NULL)
        FAIL("no %s", path);
    while ((count = fread(chunk, 1, sizeof chunk, file)) > 0)
        buf_add(&then, chunk, count);
    (void)fclose(file);
    buf_add(&then, "", 1);
    describe_version(&now, PROTOCOL_VERSION - 1);
    buf_add(&now, "", 1);
    CHECK_STR(now.bytes, then.bytes);
    buf_free(&now);
    buf_free(&then);
}

/* Workers and shims exchange no hello. Later fields of `progress` are sent only if the shim has set
 * DDP_SHIM_PROTOCOL. */
TEST(workers_and_shims_speak_as_in_version_1)
{
    static const enum msg_type types[] = {MSG_TYPE_WORKER_JOIN, MSG_TYPE_WORKER_ERROR,
                                          MSG_TYPE_WORLD};

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const struct msg_shape *shape = msg_shape(types[i]);

        for (uint32_t k = 0; k < shape->field_count; k++)
            CHECK_EQ(msg_field_since(shape->name, shape->fields[k].name), 1);
    }
}

static const char welcome_1[] = "{\"type\":\"node_welcome\",\"cluster\":\"c\","
                                "\"beat_interval_us\":1000000,\"lease_us\":\"60000000\"}";

static struct msg welcome(void)
{
    return (struct msg){.type = MSG_TYPE_NODE_WELCOME,
                        .node_welcome = {"c", 1000000, 60000000, PROTOCOL_VERSION}};
}

TEST(an_earlier_peer_gets_the_fields_that_it_knows)
{
    const struct msg_protocols earlier = {2, 1}, as_earlier = {1, 2};
    struct msg msg = welcome();
    struct err err;

    CHECK_EQ(msg_encode_between(&msg, &earlier, &out, &err), STATUS_OK);
    CHECK_EQ(out.byte_count, FRAME_HEAD_BYTES + sizeof welcome_1 - 1);
    CHECK_BYTES(out.bytes + FRAME_HEAD_BYTES, welcome_1, sizeof welcome_1 - 1);
    CHECK_EQ(msg_encode_between(&msg, &as_earlier, &again, &err), STATUS_OK);
    CHECK_EQ(again.byte_count, out.byte_count);
    clean();
}

TEST(what_an_earlier_peer_leaves_out_is_nothing)
{
    struct msg_protocols protocols = {2, 2};
    struct msg msg;
    struct err err = {.text = ""};

    CHECK_EQ(msg_decode_between(welcome_1, sizeof welcome_1 - 1, &protocols, &got, &msg, &err),
             STATUS_OK);
    CHECK_EQ(protocols.peer, 1);
    CHECK_EQ(msg.node_welcome.protocol, 0);
    CHECK_EQ(msg.node_welcome.lease_us, 60000000);
    clean();
}

/* A message of an earlier version must also have every field that its version requires. */
TEST(nothing_else_may_be_missing)
{
    static const char text[] = "{\"type\":\"node_welcome\",\"cluster\":\"c\","
                               "\"beat_interval_us\":1000000}";
    struct msg_protocols protocols = {2, 1};
    struct msg msg;
    struct err err = {.text = ""};

    CHECK_EQ(msg_decode_between(text, sizeof text - 1, &protocols, &got, &msg, &err),
             STATUS_BAD_INPUT);
    CHECK_STR(err.text, "node_welcome.lease_us: missing");
    clean();
}

static const char later_beat[] = "{\"type\":\"beat_ack\",\"sent_us\":\"5\",\"mood\":{\"a\":[1]}}";

TEST(fields_of_a_later_peer_are_passed_over)
{
    static const char later_hello[] = "{\"type\":\"shim_hello\",\"protocol\":3,\"mood\":7,"
                                      "\"job_id\":\"1\",\"generation\":2,\"pid\":3,"
                                      "\"phase\":\"ready\"}";
    struct msg_protocols protocols = {2, 2};
    struct msg msg;
    struct err err = {.text = ""};

    CHECK_EQ(msg_decode_between(later_beat, sizeof later_beat - 1, &protocols, &got, &msg, &err),
             STATUS_BAD_INPUT);
    CHECK_STR(err.text, "beat_ack: unknown field \"mood\"");
    CHECK_EQ(msg_decode_between(later_hello, sizeof later_hello - 1, &protocols, &got, &msg, &err),
             STATUS_OK);
    CHECK_EQ(protocols.peer, 3);
    CHECK_EQ(msg.shim_hello.generation, 2);
    CHECK_EQ(msg_decode_between(later_beat, sizeof later_beat - 1, &protocols, &got, &msg, &err),
             STATUS_OK);
    CHECK_EQ(msg.beat_ack.sent_us, 5);
    clean();
}

TEST(an_earlier_peer_may_send_nothing_unknown)
{
    struct msg_protocols protocols = {2, 1};
    struct msg msg;
    struct err err = {.text = ""};

    CHECK_EQ(msg_decode_between(later_beat, sizeof later_beat - 1, &protocols, &got, &msg, &err),
             STATUS_BAD_INPUT);
    clean();
}

/* Every message, as this program reads it when it speaks the version before: what version 2 adds is
 * unknown to it, and passed over since the peer said that it is of version 2. */
TEST(every_message_of_this_version_is_read_as_the_version_before)
{
    for (uint32_t type = 0; type < MSG_TYPE_COUNT; type++) {
        struct msg_protocols protocols = {PROTOCOL_VERSION - 1, PROTOCOL_VERSION};
        struct err err = {.text = ""};
        struct msg msg, read;

        make_with_parts((enum msg_type)type, &msg);
        buf_free(&out);
        CHECK_EQ(msg_encode(&msg, &out, &err), STATUS_OK);
        if (msg_says_protocol(msg.type))
            continue; /* the random version in it would be used */
        if (msg_decode_between(out.bytes + FRAME_HEAD_BYTES, out.byte_count - FRAME_HEAD_BYTES,
                               &protocols, &got, &read, &err) != STATUS_OK)
            FAIL("%s", err.text);
        arena_reset(&made);
        arena_reset(&got);
    }
    clean();
}

/* Otherwise the decoder would know none of the fields. */
TEST(version_0_is_read_as_version_1)
{
    static const char hello[] = "{\"type\":\"client_hello\",\"protocol\":0}";
    struct msg_protocols protocols = {2, 2};
    struct msg msg;
    struct err err = {.text = ""};

    CHECK_EQ(msg_decode_between(hello, sizeof hello - 1, &protocols, &got, &msg, &err),
             STATUS_BAD_INPUT);
    CHECK_STR(err.text, "client_hello.version: missing");
    clean();
}

TEST(versions_are_near_or_not)
{
    CHECK(msg_protocol_is_near(2, 2) && msg_protocol_is_near(2, 1) && msg_protocol_is_near(2, 3));
    CHECK(!msg_protocol_is_near(2, 0) && !msg_protocol_is_near(2, 4) &&
          !msg_protocol_is_near(2, UINT32_MAX));
}

TEST(version_1_refuses_in_its_words)
{
    struct msg_error error = {"refused", "node0 speaks protocol 2, this server (0.1.0) speaks 1",
                              "install the same version on both sides"};

    CHECK(msg_wants_first_protocol(&error, 2));
    CHECK(!msg_wants_first_protocol(&error, 3));
    error.message = "this key is of node a, not of b";
    CHECK(!msg_wants_first_protocol(&error, 2));
}

TEST_MAIN
