/* The codec against its own declarations: every message, every field, every end of a range. A
 * message that is added to msg.h is covered without a line here. */
#include "common/msg.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/frame.h"
#include "common/msg_table.h"
#include "tests/fuzz/msg_random.h"
#include "tests/lib/test.h"

#define ROUNDS 60

static struct arena made, got;
static struct buf out, again;

static void clean(void)
{
    arena_reset(&made);
    arena_reset(&got);
    buf_free(&out);
    buf_free(&again);
}

static void *field_of(struct msg *msg, const struct msg_field *field)
{
    return (char *)msg + MSG_BODY_OFFSET + field->offset;
}

static void make(uint64_t seed, enum msg_type type, struct msg *msg)
{
    struct random random = {.state = seed};

    msg_random(&random, &made, type, msg);
}

/* Every list with one entry, so that parts are there to be tried. */
static void make_with_parts(enum msg_type type, struct msg *msg)
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

static void check_round_trip(const struct msg *msg)
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
    CHECK_EQ(decoded.seq, msg->seq);
    if (msg_encode(&decoded, &again, &err) != STATUS_OK)
        FAIL("encode again: %s", err.text);
    CHECK_EQ(again.byte_count, out.byte_count);
    CHECK_BYTES(again.bytes, out.bytes, out.byte_count);
    arena_reset(&got);
}

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
    struct msg msg = {.type = MSG_TYPE_SUBMIT, .seq = 9}, decoded;
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
    CHECK_EQ(decoded.seq, 9);
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
                      .seq = 7,
                      .go = {.job_id = 9007199254740991,
                             .generation = 2,
                             .master_addr = "127.0.0.1",
                             .master_port = 29500}};
    static const char want[] =
        "{\"type\":\"go\",\"seq\":7,\"job_id\":\"9007199254740991\",\"generation\":2,"
        "\"master_addr\":\"127.0.0.1\",\"master_port\":29500}";
    struct err err;

    CHECK_EQ(msg_encode(&msg, &out, &err), STATUS_OK);
    CHECK_EQ(out.byte_count, 4 + sizeof want - 1);
    CHECK_BYTES(out.bytes + 4, want, sizeof want - 1);
    CHECK_EQ(out.bytes[3], (int)(sizeof want - 1));
    clean();
}

/* -- ends of ranges, in the struct
 * ---------------------------------------------------------------------------------- */

static void check_encode_refused(const struct msg *msg, const char *part,
                                 const struct msg_field *field)
{
    struct err err = {.text = ""};
    char want[64];

    buf_free(&out);
    buf_add_text(&out, "before");
    if (msg_encode(msg, &out, &err) == STATUS_OK)
        FAIL("%s%s.%s: encoded out of range", msg_type_word(msg->type), part, field->name);
    CHECK(err.status == STATUS_BAD_INPUT || err.status == STATUS_TOO_BIG);
    CHECK_EQ(out.byte_count, 6);
    CHECK(!out.failed);
    (void)snprintf(want, sizeof want, ".%s: ", field->name);
    if (strncmp(err.text, msg_type_word(msg->type), strlen(msg_type_word(msg->type))) != 0 ||
        strstr(err.text, want) == NULL)
        FAIL("%s is not named in \"%s\"", field->name, err.text);
}

static void check_encode_taken(const struct msg *msg, const char *part,
                               const struct msg_field *field)
{
    struct err err = {.text = ""};

    buf_free(&out);
    if (msg_encode(msg, &out, &err) != STATUS_OK)
        FAIL("%s%s.%s: %s", msg_type_word(msg->type), part, field->name, err.text);
    check_round_trip(msg);
}

static void set_integer(const struct msg_field *field, uint64_t bits, void *at)
{
    if (field->kind == MSG_KIND_U32 || field->kind == MSG_KIND_I32)
        *(uint32_t *)at = (uint32_t)bits;
    else
        *(uint64_t *)at = bits;
}

static bool fits(const struct msg_field *field, bool is_over)
{
    if (is_over)
        return field->kind == MSG_KIND_U32   ? field->max < UINT32_MAX
               : field->kind == MSG_KIND_I32 ? field->max < INT32_MAX
               : field->kind == MSG_KIND_I64 ? field->max < INT64_MAX
                                             : field->max < UINT64_MAX;
    return field->kind == MSG_KIND_U32 || field->kind == MSG_KIND_U64 ? field->min > 0 : true;
}

static void try_integer(struct msg *msg, const char *part, const struct msg_field *field, void *at)
{
    set_integer(field, (uint64_t)field->min, at);
    check_encode_taken(msg, part, field);
    set_integer(field, field->max, at);
    check_encode_taken(msg, part, field);
    if (fits(field, true)) {
        set_integer(field, field->max + 1, at);
        check_encode_refused(msg, part, field);
    }
    if (fits(field, false)) {
        set_integer(field, (uint64_t)field->min - 1, at);
        check_encode_refused(msg, part, field);
    }
    set_integer(field, field->max, at);
}

static void try_real(struct msg *msg, const char *part, const struct msg_field *field, void *at)
{
    const double bad[] = {NAN, INFINITY, -INFINITY, nextafter(field->real_min, -INFINITY),
                          nextafter(field->real_max, INFINITY)};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        *(double *)at = bad[i];
        check_encode_refused(msg, part, field);
    }
    *(double *)at = field->real_max;
    check_encode_taken(msg, part, field);
}

static void try_text(struct msg *msg, const char *part, const struct msg_field *field, void *at)
{
    struct random random = {.state = 3};
    const char **text = at;

    if (field->min > 0) {
        *text = text_random(&random, &made, field->kind, (size_t)field->min - 1);
        check_encode_refused(msg, part, field);
    }
    *text = text_random(&random, &made, field->kind, field->max + 1);
    check_encode_refused(msg, part, field);
    if (field->kind != MSG_KIND_NAME || field->min <= 3) {
        *text = field->kind == MSG_KIND_TEXT   ? "a\xff"
                : field->kind == MSG_KIND_LINE ? "a\n"
                                               : "a b";
        check_encode_refused(msg, part, field);
    }
    *text = text_random(&random, &made, MSG_KIND_NAME, field->max);
    check_encode_taken(msg, part, field);
    *text = text_random(&random, &made, field->kind, (size_t)field->min);
    check_encode_taken(msg, part, field);
}

static void try_word(struct msg *msg, const char *part, const struct msg_field *field, void *at)
{
    uint32_t word = field->words->count;

    memcpy(at, &word, sizeof word);
    check_encode_refused(msg, part, field);
    word--;
    memcpy(at, &word, sizeof word);
    check_encode_taken(msg, part, field);
}

/* One over the count; the entries themselves do not matter, the count is refused first. */
static void try_count(struct msg *msg, const char *part, const struct msg_field *field, void *at)
{
    struct msg_list before, list;
    static const struct part_job entries[RANKS_PER_JOB_MAX + 1];

    memcpy(&before, at, sizeof before);
    list = (struct msg_list){.items = entries, .count = (uint32_t)field->max + 1};
    memcpy(at, &list, sizeof list);
    check_encode_refused(msg, part, field);
    if (field->min > 0) {
        list.count = (uint32_t)field->min - 1;
        memcpy(at, &list, sizeof list);
        check_encode_refused(msg, part, field);
    }
    memcpy(at, &before, sizeof before);
    check_encode_taken(msg, part, field);
}

static void try_field(struct msg *msg, const char *part, const struct msg_field *field, void *at)
{
    switch (field->kind) {
    case MSG_KIND_U32:
    case MSG_KIND_I32:
    case MSG_KIND_U64:
    case MSG_KIND_I64:
        try_integer(msg, part, field, at);
        return;
    case MSG_KIND_F64:
        try_real(msg, part, field, at);
        return;
    case MSG_KIND_TEXT:
    case MSG_KIND_LINE:
    case MSG_KIND_NAME:
        try_text(msg, part, field, at);
        return;
    case MSG_KIND_WORD:
        try_word(msg, part, field, at);
        return;
    case MSG_KIND_TEXTS:
    case MSG_KIND_PAIRS:
    case MSG_KIND_BYTES:
    case MSG_KIND_LIST:
        try_count(msg, part, field, at);
        return;
    case MSG_KIND_BOOL:
        return;
    }
}

TEST(every_end_of_a_range_holds_when_encoding)
{
    uint32_t field_count = 0;

    for (uint32_t type = 0; type < MSG_TYPE_COUNT; type++) {
        const struct msg_shape *shape = msg_shape((enum msg_type)type);
        struct msg msg;

        make_with_parts((enum msg_type)type, &msg);
        for (uint32_t i = 0; i < shape->field_count; i++, field_count++) {
            const struct msg_field *field = &shape->fields[i];
            const struct msg_shape *part;
            struct msg_list list;

            try_field(&msg, "", field, field_of(&msg, field));
            if (field->kind != MSG_KIND_LIST)
                continue;
            part = field->part();
            memcpy(&list, field_of(&msg, field), sizeof list);
            for (uint32_t j = 0; j < part->field_count; j++, field_count++)
                try_field(&msg, field->name, &part->fields[j],
                          (char *)(uintptr_t)list.items + part->fields[j].offset);
        }
        clean();
    }
    CHECK(field_count > 200);
}

/* -- the same in JSON
 * -------------------------------------------------------------------------------------------------
 */

static cJSON *to_json(const struct msg *msg)
{
    struct err err = {.text = ""};
    cJSON *root;

    buf_free(&out);
    if (msg_encode(msg, &out, &err) != STATUS_OK)
        FAIL("encode: %s", err.text);
    root = cJSON_ParseWithLength(out.bytes + 4, out.byte_count - 4);
    CHECK(root != NULL);
    return root;
}

static void check_decode_refused(const cJSON *root, const char *message, const char *named)
{
    struct err err = {.text = ""};
    struct msg msg;
    char *text = cJSON_PrintUnformatted(root);
    enum status status = msg_decode(text, strlen(text), &got, &msg, &err);

    arena_reset(&got);
    if (status != STATUS_BAD_INPUT && status != STATUS_TOO_BIG)
        FAIL("taken: %s", text);
    if ((message != NULL && strncmp(err.text, message, strlen(message)) != 0) ||
        strstr(err.text, named) == NULL)
        FAIL("%s: %s is not named in \"%s\" about %s", message != NULL ? message : "", named,
             err.text, text);
    cJSON_free(text);
}

/* Put `raw` in the place of `name` and see it refused; then put the old value back. */
static void try_raw(cJSON *root, cJSON *object, const char *message, const char *name,
                    const char *raw)
{
    cJSON *old = cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(object, name), 1);

    cJSON_ReplaceItemInObjectCaseSensitive(object, name, cJSON_CreateRaw(raw));
    check_decode_refused(root, message, name);
    cJSON_ReplaceItemInObjectCaseSensitive(object, name, old);
}

static void try_json_range(cJSON *root, cJSON *object, const char *message,
                           const struct msg_field *field)
{
    bool in_string = field->kind == MSG_KIND_U64 || field->kind == MSG_KIND_I64;
    const char *quote = in_string ? "\"" : "";
    char raw[64];

    (void)snprintf(raw, sizeof raw, "%s%" PRId64 "%s", quote, field->min - 1, quote);
    if (field->min > INT64_MIN)
        try_raw(root, object, message, field->name, raw);
    if (field->max == UINT64_MAX)
        (void)snprintf(raw, sizeof raw, "\"18446744073709551616\"");
    else
        (void)snprintf(raw, sizeof raw, "%s%" PRIu64 "%s", quote, field->max + 1, quote);
    try_raw(root, object, message, field->name, raw);
    try_raw(root, object, message, field->name, in_string ? "\"01\"" : "1.5");
    try_raw(root, object, message, field->name, in_string ? "\"+1\"" : "1e300");
    try_raw(root, object, message, field->name, in_string ? "\"1 \"" : "\"1\"");
    try_raw(root, object, message, field->name, in_string ? "\"-0\"" : "0.0001");
    try_raw(root, object, message, field->name, in_string ? "\"\"" : "-4294967297");
    try_raw(root, object, message, field->name, in_string ? "1" : "true");
}

static void try_json_field(cJSON *root, cJSON *object, const char *message,
                           const struct msg_field *field)
{
    cJSON *item;

    try_raw(root, object, message, field->name, "null");
    try_raw(root, object, message, field->name, "[[]]");
    try_raw(root, object, message, field->name, "{\"\":0}");
    switch (field->kind) {
    case MSG_KIND_U32:
    case MSG_KIND_I32:
    case MSG_KIND_U64:
    case MSG_KIND_I64:
        try_json_range(root, object, message, field);
        break;
    case MSG_KIND_F64:
        try_raw(root, object, message, field->name, "1e301");
        try_raw(root, object, message, field->name, "-1e301");
        break;
    case MSG_KIND_WORD:
        try_raw(root, object, message, field->name, "\"Queued\"");
        try_raw(root, object, message, field->name, "\"\"");
        break;
    case MSG_KIND_BYTES:
        try_raw(root, object, message, field->name, "\"QQ\"");
        try_raw(root, object, message, field->name, "\"QR==\"");
        try_raw(root, object, message, field->name, "\"Q===\"");
        try_raw(root, object, message, field->name, "\"====\"");
        try_raw(root, object, message, field->name, "\"QUJD\\n\"");
        break;
    case MSG_KIND_NAME:
        try_raw(root, object, message, field->name, "\"a/b\"");
        break;
    case MSG_KIND_LINE:
        try_raw(root, object, message, field->name, "\"a\\u0085b\"");
        break;
    case MSG_KIND_TEXTS:
        try_raw(root, object, message, field->name, "[1]");
        break;
    case MSG_KIND_PAIRS:
        try_raw(root, object, message, field->name, "{\"a\":\"b\",\"c\":1}");
        try_raw(root, object, message, field->name, "{\"\":\"b\"}");
        break;
    case MSG_KIND_TEXT:
    case MSG_KIND_BOOL:
    case MSG_KIND_LIST:
        break;
    }
    item = cJSON_DetachItemFromObjectCaseSensitive(object, field->name);
    check_decode_refused(root, message, field->name);
    cJSON_AddItemToObject(object, field->name, cJSON_Duplicate(item, 1));
    cJSON_AddItemToObject(object, field->name, item);
    check_decode_refused(root, NULL, field->name); /* twice */
    cJSON_DetachItemViaPointer(object, item);
    cJSON_Delete(item);
}

TEST(every_field_is_checked_when_decoding)
{
    for (uint32_t type = 0; type < MSG_TYPE_COUNT; type++) {
        const struct msg_shape *shape = msg_shape((enum msg_type)type);
        struct msg msg;
        cJSON *root;

        make_with_parts((enum msg_type)type, &msg);
        root = to_json(&msg);
        for (uint32_t i = 0; i < shape->field_count; i++) {
            const struct msg_field *field = &shape->fields[i];
            const struct msg_shape *part;

            try_json_field(root, root, shape->name, field);
            if (field->kind != MSG_KIND_LIST)
                continue;
            part = field->part();
            for (uint32_t j = 0; j < part->field_count; j++)
                try_json_field(root, cJSON_GetObjectItemCaseSensitive(root, field->name)->child,
                               shape->name, &part->fields[j]);
        }
        cJSON_AddNumberToObject(root, "Extra", 1);
        check_decode_refused(root, shape->name, "unknown field \"Extra\"");
        cJSON_Delete(root);
        clean();
    }
}

/* -- sizes
 * ------------------------------------------------------------------------------------------------------------
 */

/* The longest on the wire: control characters become six, quotes two. */
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
    case MSG_KIND_WORD:
        for (uint32_t i = 1; i < field->words->count; i++)
            if (strlen(field->words->items[i]) > strlen(field->words->items[word]))
                word = i;
        memcpy(at, &word, sizeof word);
        return;
    case MSG_KIND_BOOL:
    case MSG_KIND_TEXTS: /* bounded by the frame alone */
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

/* What is in range must be sendable: no cap on frames may be hit by values that the ranges allow,
 * but for argv and env. */
TEST(the_longest_message_of_every_type_fits_its_frame)
{
    static const char *const one[] = {"x"};

    for (uint32_t type = 0; type < MSG_TYPE_COUNT; type++) {
        const struct msg_shape *shape = msg_shape((enum msg_type)type);
        struct msg msg = {.type = (enum msg_type)type, .seq = UINT32_MAX};

        fill_longest(shape, (char *)&msg + MSG_BODY_OFFSET);
        fill_lists(shape, &msg);
        if (type == MSG_TYPE_SUBMIT)
            msg.submit.argv = (struct msg_text_list){one, 1};
        if (type == MSG_TYPE_START)
            msg.start.argv = (struct msg_text_list){one, 1};
        check_round_trip(&msg);
        clean();
    }
}

/* A submit as large as allowed becomes a start and a job_info, which carry more: they must fit too.
 */
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
    CHECK_STR(err.text, "submit: 1048577 bytes, at most 1048576 allowed");
    CHECK_EQ(out.byte_count, 0);
    clean();
}

TEST(a_frame_over_the_cap_of_its_type_is_refused)
{
    struct err err = {.text = ""};
    struct msg msg;

    buf_add_text(&out, "{\"type\":\"forget\",\"seq\":1,\"job_id\":\"1\",\"generation\":1");
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
        {"{\"type\":\"go\",\"seq\":1,\"job_id\":\"1\",\"generation\":0,\"master_addr\":\"a\","
         "\"master_port\":1}",
         "go.generation: 0 is not in 1..1000000"},
        {"{\"type\":\"go\",\"seq\":1,\"job_id\":\"1\",\"generation\":1,\"master_addr\":\"a\"}",
         "go.master_port: missing"},
        {"{\"type\":\"go\",\"seq\":1,\"job_id\":1}", "go.job_id: expected an integer in a string"},
        {"{\"type\":\"beat\",\"seq\":1,\"sent_us\":\"5\",\"shims\":[{\"job_id\":\"0\"}]}",
         "beat.shims[0].job_id: 0 is not in 1..9007199254740991"},
        {"{\"type\":\"beat\",\"seq\":1,\"sent_us\":\"5\",\"shims\":[7]}",
         "beat.shims[0]: expected an object"},
        {"{\"type\":\"hallo\",\"seq\":1}", "message: \"hallo\" is no type of message"},
        {"{\"seq\":1,\"type\":\"go\"}",
         "message: expected an object that begins with \"type\" and \"seq\""},
        {"[]", "message: expected an object that begins with \"type\" and \"seq\""},
        {"{\"type\":\"go\",\"seq\":-1}", "go.seq: -1 is not in 0..4294967295"},
        {"{\"type\":\"forget\",\"seq\":1,\"job_id\":\"1\",\"generation\":1,\"a\\nb\":2}",
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
    CHECK_STR(msg_type_word(MSG_TYPE_NODE_HELLO), "node_hello");
    CHECK_STR(job_state_word(JOB_RESTARTING), "restarting");
    CHECK_STR(shim_phase_word(SHIM_READY), "ready");
    CHECK_STR(rank_state_word(RANK_LOST), "lost");
    CHECK_STR(node_state_word(NODE_SUSPECT), "suspect");
    CHECK_STR(node_state_word((enum node_state)99), "unknown");
}

TEST_MAIN
