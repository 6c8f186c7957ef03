/* Messages between neighbouring versions. protocol-3.txt is the schema of version 3, one line a field, as
 * released: what is sent to a peer of that version must have these fields and no others. A later
 * version gets a file of its own when the next one begins:
 *
 *     DDP_PRINT_SCHEMA=1 build/tests/unit/common/test-msg_version > tests/unit/common/protocol-N.txt */
#include "common/msg_version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/frame.h"
#include "common/msg_schema.h"
#include "tests/lib/test.h"
#include "tests/unit/common/msg_tools.h"

TEST(the_version_before_is_as_it_was_released)
{
    struct buf now = {0}, then = {0};
    char path[64], chunk[4096];
    size_t count;
    FILE *file;

    if (getenv("DDP_PRINT_SCHEMA") != NULL) {
        msg_schema_write(&now, PROTOCOL_VERSION);
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
    msg_schema_write(&now, PROTOCOL_VERSION - 1);
    buf_add(&now, "", 1);
    CHECK_STR(now.bytes, then.bytes);
    buf_free(&now);
    buf_free(&then);
}

/* A hello of a build whose messages differ although its protocol is the same can be read, so that the refusal
 * says why, whatever its fields are. */
TEST(a_hello_of_another_build_is_read)
{
    struct msg_protocols protocols = {PROTOCOL_VERSION, PROTOCOL_VERSION};
    char text[256];
    struct msg msg;
    struct err err = {.text = ""};

    (void)snprintf(
        text, sizeof text,
        "{\"type\":\"shim_hello\",\"protocol\":%u,\"mood\":7,\"job_id\":\"1\",\"generation\":2,"
        "\"phase\":\"ready\",\"schema\":\"0123456789abcdef\"}",
        PROTOCOL_VERSION);
    CHECK_EQ(msg_decode_between(text, strlen(text), &protocols, &got, &msg, &err), STATUS_OK);
    CHECK(msg_schema_differs(PROTOCOL_VERSION, msg_hello_protocol(&msg), msg_hello_schema(&msg)));
    CHECK(!msg_schema_differs(PROTOCOL_VERSION - 1, PROTOCOL_VERSION, "0123456789abcdef"));
    CHECK(!msg_schema_differs(PROTOCOL_VERSION, PROTOCOL_VERSION, msg_schema()));
    CHECK(!msg_schema_differs(PROTOCOL_VERSION, PROTOCOL_VERSION, ""));
    (void)snprintf(
        text, sizeof text,
        "{\"type\":\"shim_hello\",\"protocol\":%u,\"mood\":7,\"job_id\":\"1\",\"generation\":2,"
        "\"pid\":1,\"phase\":\"ready\",\"schema\":\"%s\"}",
        PROTOCOL_VERSION, msg_schema());
    CHECK_EQ(msg_decode_between(text, strlen(text), &protocols, &got, &msg, &err),
             STATUS_BAD_INPUT);
    CHECK_STR(err.text, "shim_hello: unknown field \"mood\"");
    clean();
}

/* The hash is of the schema's text: it changes with any line of it. */
TEST(the_schema_hash_is_of_all_lines)
{
    struct buf text = {0};
    uint64_t hash = UINT64_C(14695981039346656037);
    char hex[SCHEMA_BYTES_MAX];

    msg_schema_write(&text, PROTOCOL_VERSION);
    for (size_t i = 0; i < text.byte_count; i++)
        hash = (hash ^ (uint8_t)text.bytes[i]) * UINT64_C(1099511628211);
    (void)snprintf(hex, sizeof hex, "%016llx", (unsigned long long)hash);
    CHECK_STR(msg_schema(), hex);
    buf_add(&text, "", 1);
    CHECK(strstr(text.bytes, "\nnode_hello.schema LINE 0 16\n") != NULL);
    buf_free(&text);
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

static const char welcome_2[] = "{\"type\":\"node_welcome\",\"cluster\":\"c\","
                                "\"beat_interval_us\":1000000,\"lease_us\":\"60000000\","
                                "\"protocol\":2}";

static struct msg welcome(void)
{
    return (struct msg){.type = MSG_TYPE_NODE_WELCOME,
                        .node_welcome = {"c", 1000000, 60000000, 2, "0123456789abcdef"}};
}

TEST(an_earlier_peer_gets_the_fields_that_it_knows)
{
    const struct msg_protocols earlier = {3, 2}, as_earlier = {2, 3};
    struct msg msg = welcome();
    struct err err;

    CHECK_EQ(msg_encode_between(&msg, &earlier, &out, &err), STATUS_OK);
    CHECK_EQ(out.byte_count, FRAME_HEAD_BYTES + sizeof welcome_2 - 1);
    CHECK_BYTES(out.bytes + FRAME_HEAD_BYTES, welcome_2, sizeof welcome_2 - 1);
    CHECK_EQ(msg_encode_between(&msg, &as_earlier, &again, &err), STATUS_OK);
    CHECK_EQ(again.byte_count, out.byte_count);
    clean();
}

static bool has(const struct buf *text, const char *part)
{
    return memmem(text->bytes, text->byte_count, part, strlen(part)) != NULL;
}

/* It would close the connection, again and again, or refuse the job. */
TEST(an_earlier_peer_gets_no_more_than_it_takes)
{
    static struct msg_pair env[ENV_MAX_3 + 1];
    static char names[ENV_MAX_3 + 1][8], value[FRAME_LARGE_BYTES_MAX_3];
    static const char *const words[] = {"x"};
    const struct msg_pair launch[] = {
        {"umask", "027"}, {"role", "r"}, {"limits", "core=1"}, {"store", "on"}};
    const struct msg_protocols earlier = {4, 3}, same = {4, 4};
    struct msg msg = {.type = MSG_TYPE_WARM,
                      .warm = {.cluster = "c",
                               .job_id = 1,
                               .user = "",
                               .slot_mask = 1,
                               .cwd = "/",
                               .argv = {words, 1},
                               .env = {env, ENV_MAX_3},
                               .launch = {launch, 4}}};
    struct err err;

    for (uint32_t i = 0; i <= ENV_MAX_3; i++) {
        (void)snprintf(names[i], sizeof names[i], "V%u", i);
        env[i] = (struct msg_pair){names[i], ""};
    }
    env[1] = (struct msg_pair){"umask", "V"};
    CHECK_EQ(msg_encode_between(&msg, &earlier, &out, &err), STATUS_OK);
    CHECK(has(&out, "\"launch\":{\"role\":\"r\",\"store\":\"on\"}") &&
          has(&out, "\"umask\":\"V\""));
    out.byte_count = 0;
    CHECK_EQ(msg_encode_between(&msg, &same, &out, &err), STATUS_OK);
    CHECK(has(&out, "\"umask\":\"027\",\"role\":\"r\",\"limits\":\"core=1\",\"store\":\"on\"}"));
    msg.warm.env.count++;
    CHECK_EQ(msg_encode_between(&msg, &earlier, &out, &err), STATUS_TOO_BIG);
    CHECK_STR(err.text,
              "warm.env: 1025 pairs, and the release of the receiver takes 1024: upgrade it");
    CHECK_EQ(msg_encode_between(&msg, &same, &out, &err), STATUS_OK);
    memset(value, 'x', sizeof value - 1);
    env[0].value = value;
    msg.warm.env.count = 1;
    CHECK_EQ(msg_encode_between(&msg, &same, &out, &err), STATUS_OK);
    CHECK_EQ(msg_encode_between(&msg, &earlier, &out, &err), STATUS_TOO_BIG);
    CHECK(strstr(err.text, "the release of the receiver takes 1572864: upgrade it") != NULL);
    clean();
}

TEST(what_an_earlier_peer_leaves_out_is_nothing)
{
    struct msg_protocols protocols = {3, 3};
    struct msg msg;
    struct err err = {.text = ""};

    CHECK_EQ(msg_decode_between(welcome_2, sizeof welcome_2 - 1, &protocols, &got, &msg, &err),
             STATUS_OK);
    CHECK_EQ(protocols.peer, 2);
    CHECK_STR(msg.node_welcome.schema, "");
    CHECK_EQ(msg.node_welcome.lease_us, 60000000);
    clean();
}

/* A message of an earlier version must also have every field that its version requires. */
TEST(nothing_else_may_be_missing)
{
    static const char text[] = "{\"type\":\"node_welcome\",\"cluster\":\"c\","
                               "\"beat_interval_us\":1000000,\"protocol\":2}";
    struct msg_protocols protocols = {3, 2};
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

TEST_MAIN
