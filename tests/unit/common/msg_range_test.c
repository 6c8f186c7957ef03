/* The codec against its own declarations: every field of every message at both ends of its range,
 * when encoding and when decoding. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/limits.h"
#include "common/msg.h"
#include "common/msg_version.h"
#include "tests/fuzz/msg_random.h"
#include "tests/lib/test.h"
#include "tests/unit/common/msg_tools.h"

/* -- ends of ranges, in the struct ------------------------------------------------------------- */

static void check_encode_refused(const struct msg *msg, const char *part,
                                 const struct msg_field *field)
{
    struct err err = {.text = ""};
    char want[64];

    buf_free(&out);
    buf_add_text(&out, "before");
    if (msg_encode(msg, &out, &err) == STATUS_OK)
        FAIL("%s%s.%s: encoded out of range", msg_type_name(msg->type), part, field->name);
    CHECK(err.status == STATUS_BAD_INPUT || err.status == STATUS_TOO_BIG);
    CHECK_EQ(out.byte_count, 6);
    CHECK(!out.failed);
    (void)snprintf(want, sizeof want, ".%s: ", field->name);
    if (strncmp(err.text, msg_type_name(msg->type), strlen(msg_type_name(msg->type))) != 0 ||
        strstr(err.text, want) == NULL)
        FAIL("%s is not named in \"%s\"", field->name, err.text);
}

static void check_encode_taken(const struct msg *msg, const char *part,
                               const struct msg_field *field)
{
    struct err err = {.text = ""};

    buf_free(&out);
    if (msg_encode(msg, &out, &err) != STATUS_OK)
        FAIL("%s%s.%s: %s", msg_type_name(msg->type), part, field->name, err.text);
    check_round_trip(msg);
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
    uint32_t word = field->names->count;

    memcpy(at, &word, sizeof word);
    check_encode_refused(msg, part, field);
    word--;
    memcpy(at, &word, sizeof word);
    check_encode_taken(msg, part, field);
}

/* One entry more than allowed. The entries themselves do not matter, since the count is refused
 * first. */
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
    case MSG_KIND_ENUM:
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

/* -- the same in JSON -------------------------------------------------------------------------- */

static cJSON *to_json(const struct msg *msg)
{
    struct err err = {.text = ""};
    cJSON *root;

    buf_free(&out);
    if (msg_encode(msg, &out, &err) != STATUS_OK)
        FAIL("encode: %s", err.text);
    root = cJSON_ParseWithLength(out.bytes + 4, out.byte_count - 4);
    CHECK(root != NULL);
    if (msg_says_protocol(msg->type)) { /* a later version or another build may have other fields */
        (void)cJSON_ReplaceItemInObjectCaseSensitive(root, "protocol",
                                                     cJSON_CreateNumber(PROTOCOL_VERSION));
        (void)cJSON_ReplaceItemInObjectCaseSensitive(root, "schema", cJSON_CreateString(""));
    }
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

/* Replaces the value of `name` by `raw`, checks that it is refused, and restores the old value. */
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
    case MSG_KIND_ENUM:
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
    check_decode_refused(root, NULL, field->name); /* the field appears twice */
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

TEST_MAIN
