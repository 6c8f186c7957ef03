/* Round trips of messages: every type, with random values, the longest values, and the texts of
 * errors. A message added to msg.h is covered without a change here. */
#include "common/msg.h"

#include <stdio.h>
#include <string.h>

#include "common/arena.h"
#include "common/buf.h"
#include "tests/lib/test.h"
#include "tests/unit/common/msg_tools.h"

#define ROUNDS 60

TEST(random_messages_of_every_type_come_back_the_same)
{
    for (uint32_t type = 0; type < MSG_TYPE_COUNT; type++)
        for (uint64_t seed = 0; seed < ROUNDS; seed++) {
            struct msg msg;

            make(seed * 1000 + type, (enum msg_type)type, &msg);
            check_round_trip(&msg);
            arena_reset(&made);
        }
    clean();
}

TEST(values_come_back_exactly)
{
    static const char *const argv[] = {"python", "train.py", "--name=\"a\\b\"\n", ""};
    static const struct msg_pair env[] = {{"A", "1"}, {"a", "\xc3\xa9"}};
    struct msg msg = {.type = MSG_TYPE_SUBMIT}, decoded;
    struct err err;

    msg.submit = (struct msg_submit){.request_id = "0123456789abcdef0123456789abcdef",
                                     .name = "r50",
                                     .nodes = 2,
                                     .nproc_per_node = 8,
                                     .grace_us = 12345678901,
                                     .cwd = "/home/u",
                                     .argv = {argv, 4},
                                     .env = {env, 2}};
    CHECK_EQ(msg_encode(&msg, &out, &err), STATUS_OK);
    CHECK_EQ(msg_decode(out.bytes + 4, out.byte_count - 4, &got, &decoded, &err), STATUS_OK);
    CHECK_STR(decoded.submit.name, "r50");
    CHECK_EQ(decoded.submit.nproc_per_node, 8);
    CHECK_EQ(decoded.submit.grace_us, 12345678901);
    CHECK_EQ(decoded.submit.argv.count, 4);
    for (uint32_t i = 0; i < 4; i++)
        CHECK_STR(decoded.submit.argv.items[i], argv[i]);
    CHECK_STR(decoded.submit.env.items[1].name, "a");
    CHECK_STR(decoded.submit.env.items[1].value, "\xc3\xa9");
    clean();
}

TEST(the_wire_is_as_documented)
{
    struct msg msg = {.type = MSG_TYPE_GO,
                      .go = {.job_id = 9007199254740991,
                             .generation = 2,
                             .master_addr = "127.0.0.1",
                             .master_port = 29500}};
    static const char want[] = "{\"type\":\"go\",\"job_id\":\"9007199254740991\",\"generation\":2,"
                               "\"master_addr\":\"127.0.0.1\",\"master_port\":29500}";
    struct err err;

    CHECK_EQ(msg_encode(&msg, &out, &err), STATUS_OK);
    CHECK_EQ(out.byte_count, 4 + sizeof want - 1);
    CHECK_BYTES(out.bytes + 4, want, sizeof want - 1);
    CHECK_EQ(out.bytes[3], (int)(sizeof want - 1));
    clean();
}

/* -- sizes ------------------------------------------------------------------------------------- */

/* The longest encoding: a control character becomes six characters, a quote two. */
static const char *longest_text(enum msg_kind kind, size_t byte_count)
{
    char *text = arena_alloc(&made, byte_count + 1);

    CHECK(text != NULL);
    memset(text, kind == MSG_KIND_TEXT ? 1 : kind == MSG_KIND_LINE ? '"' : 'n', byte_count);
    return text;
}

static void set_longest(const struct msg_field *field, void *at)
{
    uint32_t word = 0;

    switch (field->kind) {
    case MSG_KIND_U32:
    case MSG_KIND_I32:
    case MSG_KIND_U64:
    case MSG_KIND_I64:
        set_integer(field, field->max, at);
        return;
    case MSG_KIND_F64:
        *(double *)at = field->real_min < 0 ? -1.2345678901234567e-299 : 1.2345678901234567e-299;
        return;
    case MSG_KIND_TEXT:
    case MSG_KIND_LINE:
    case MSG_KIND_NAME:
        *(const char **)at = longest_text(field->kind, field->max);
        return;
    case MSG_KIND_BYTES:
        *(struct msg_bytes *)at = (struct msg_bytes){.items = arena_alloc(&made, field->max),
                                                     .count = (uint32_t)field->max};
        return;
    case MSG_KIND_ENUM:
        for (uint32_t i = 1; i < field->names->count; i++)
            if (strlen(field->names->items[i]) > strlen(field->names->items[word]))
                word = i;
        memcpy(at, &word, sizeof word);
        return;
    case MSG_KIND_BOOL:
    case MSG_KIND_TEXTS: /* bounded only by the frame */
    case MSG_KIND_PAIRS:
    case MSG_KIND_LIST:
        return;
    }
}

static void fill_longest(const struct msg_shape *shape, char *record)
{
    for (uint32_t i = 0; i < shape->field_count; i++)
        set_longest(&shape->fields[i], record + shape->fields[i].offset);
}

static void fill_lists(const struct msg_shape *shape, struct msg *msg)
{
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const struct msg_field *field = &shape->fields[i];
        struct msg_list list = {.count = (uint32_t)field->max};
        char *items;

        if (field->kind != MSG_KIND_LIST)
            continue;
        items = arena_alloc(&made, list.count * field->part()->byte_count);
        CHECK(items != NULL);
        for (uint32_t j = 0; j < list.count; j++)
            fill_longest(field->part(), items + j * field->part()->byte_count);
        list.items = items;
        memcpy(field_of(msg, field), &list, sizeof list);
    }
}

/* A message with all values in range must fit into a frame, except for argv and env. */
TEST(the_longest_message_of_every_type_fits_its_frame)
{
    static const char *const one[] = {"x"};

    for (uint32_t type = 0; type < MSG_TYPE_COUNT; type++) {
        const struct msg_shape *shape = msg_shape((enum msg_type)type);
        struct msg msg = {.type = (enum msg_type)type};

        fill_longest(shape, (char *)&msg + MSG_BODY_OFFSET);
        fill_lists(shape, &msg);
        if (type == MSG_TYPE_SUBMIT)
            msg.submit.argv = (struct msg_text_list){one, 1};
        if (type == MSG_TYPE_START)
            msg.start.argv = (struct msg_text_list){one, 1};
        if (type == MSG_TYPE_WARM)
            msg.warm.argv = (struct msg_text_list){one, 1};
        check_round_trip(&msg);
        clean();
    }
}

/* The largest allowed submit becomes a start and a job_info, which have more fields: these must fit
 * too. */
TEST(the_largest_submit_can_be_started_and_shown)
{
    struct msg submit = {.type = MSG_TYPE_SUBMIT}, start = {.type = MSG_TYPE_START},
               info = {.type = MSG_TYPE_JOB_INFO};
    const char *args[2] = {"x", NULL};
    struct err err = {.text = ""};

    fill_longest(msg_shape(MSG_TYPE_SUBMIT), (char *)&submit.submit);
    fill_longest(msg_shape(MSG_TYPE_START), (char *)&start.start);
    fill_longest(msg_shape(MSG_TYPE_JOB_INFO), (char *)&info.job_info);
    fill_lists(msg_shape(MSG_TYPE_JOB_INFO), &info);
    submit.submit.argv = (struct msg_text_list){args, 1};
    CHECK_EQ(msg_encode(&submit, &out, &err), STATUS_OK);
    args[1] = longest_text(MSG_KIND_NAME, FRAME_SUBMIT_BYTES_MAX + 4 - out.byte_count - 3);
    submit.submit.argv.count = 2;
    check_round_trip(&submit);
    CHECK_EQ(out.byte_count, FRAME_SUBMIT_BYTES_MAX + 4);
    start.start.argv = submit.submit.argv;
    check_round_trip(&start);
    info.job_info.argv = submit.submit.argv;
    check_round_trip(&info);

    args[1] = longest_text(MSG_KIND_NAME, strlen(args[1]) + 1);
    buf_free(&out);
    CHECK_EQ(msg_encode(&submit, &out, &err), STATUS_TOO_BIG);
    CHECK_STR(err.text, "submit: 3145729 bytes, at most 3145728 allowed");
    CHECK_EQ(out.byte_count, 0);
    clean();
}

TEST(a_frame_over_the_cap_of_its_type_is_refused)
{
    struct err err = {.text = ""};
    struct msg msg;

    buf_add_text(&out, "{\"type\":\"forget\",\"job_id\":\"1\",\"generation\":1");
    while (out.byte_count < FRAME_BYTES_MAX)
        buf_add_text(&out, "          ");
    buf_add_text(&out, "}");
    CHECK_EQ(msg_decode(out.bytes, out.byte_count, &got, &msg, &err), STATUS_TOO_BIG);
    CHECK(strncmp(err.text, "forget: 655", 11) == 0);
    clean();
}

TEST(errors_name_the_field_and_what_was_expected)
{
    static const struct {
        const char *json, *text;
    } cases[] = {
        {"{\"type\":\"go\",\"job_id\":\"1\",\"generation\":0,\"master_addr\":\"a\","
         "\"master_port\":1}",
         "go.generation: 0 is not in 1..1000000"},
        {"{\"type\":\"go\",\"job_id\":\"1\",\"generation\":1,\"master_addr\":\"a\"}",
         "go.master_port: missing"},
        {"{\"type\":\"go\",\"job_id\":1}", "go.job_id: expected an integer in a string"},
        {"{\"type\":\"beat\",\"sent_us\":\"5\",\"shims\":[{\"job_id\":\"0\"}]}",
         "beat.shims[0].job_id: 0 is not in 1..9007199254740991"},
        {"{\"type\":\"beat\",\"sent_us\":\"5\",\"shims\":[7]}",
         "beat.shims[0]: expected an object"},
        {"{\"type\":\"hallo\"}", "message: \"hallo\" is no type of message"},
        {"{\"job_id\":\"1\",\"type\":\"go\"}",
         "message: expected an object that begins with \"type\""},
        {"[]", "message: expected an object that begins with \"type\""},
        {"{\"type\":\"go\",\"seq\":1}", "go: unknown field \"seq\""},
        {"{\"type\":\"forget\",\"job_id\":\"1\",\"generation\":1,\"a\\nb\":2}",
         "forget: unknown field \"a?b\""},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {.text = ""};
        struct msg msg;

        CHECK_EQ(msg_decode(cases[i].json, strlen(cases[i].json), &got, &msg, &err),
                 STATUS_BAD_INPUT);
        CHECK_STR(err.text, cases[i].text);
    }
    clean();
}

TEST(stored_messages_of_other_versions_are_read)
{
    static const char later[] =
        "{\"type\":\"stop\",\"job_id\":\"1\",\"generation\":2,\"signal\":15,"
        "\"grace_us\":\"7\",\"reason\":\"x\",\"colour\":{\"a\":[1]}}";
    static const char earlier[] =
        "{\"type\":\"stop\",\"job_id\":\"1\",\"generation\":2,\"signal\":9}";
    static const char useless[] = "{\"type\":\"stop\",\"job_id\":\"1\",\"signal\":9}";
    struct err err = {.text = ""};
    struct msg msg;

    CHECK_EQ(msg_decode(later, strlen(later), &got, &msg, &err), STATUS_BAD_INPUT);
    CHECK_EQ(msg_decode_stored(later, strlen(later), &got, &msg, &err), STATUS_OK);
    CHECK_EQ(msg.stop.grace_us, 7);
    CHECK_STR(msg.stop.reason, "x");
    CHECK_EQ(msg_decode(earlier, strlen(earlier), &got, &msg, &err), STATUS_BAD_INPUT);
    CHECK_EQ(msg_decode_stored(earlier, strlen(earlier), &got, &msg, &err), STATUS_OK);
    CHECK_EQ(msg.stop.signal, 9);
    CHECK_EQ(msg.stop.grace_us, 0);
    CHECK_STR(msg.stop.reason, "");
    CHECK_EQ(msg_decode_stored(useless, strlen(useless), &got, &msg, &err), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "stop.generation: missing");
    clean();
}

TEST(an_arena_that_is_spent_is_an_error)
{
    struct err err = {.text = ""};
    struct msg msg;

    make_with_parts(MSG_TYPE_JOB_INFO, &msg);
    CHECK_EQ(msg_encode(&msg, &out, &err), STATUS_OK);
    got.byte_limit = 64;
    CHECK_EQ(msg_decode(out.bytes + 4, out.byte_count - 4, &got, &msg, &err), STATUS_MEMORY);
    got.byte_limit = 0;
    clean();
}

TEST(words_are_those_of_the_tables)
{
    CHECK_STR(msg_type_name(MSG_TYPE_NODE_HELLO), "node_hello");
    CHECK_STR(job_state_name(JOB_RESTARTING), "restarting");
    CHECK_STR(shim_phase_name(SHIM_READY), "ready");
    CHECK_STR(rank_state_name(RANK_LOST), "lost");
    CHECK_STR(node_state_name(NODE_SUSPECT), "suspect");
    CHECK_STR(node_state_name((enum node_state)99), "unknown");
}

TEST_MAIN
