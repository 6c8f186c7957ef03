#include "common/json_strict.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/buf.h"
#include "common/limits.h"
#include "tests/lib/test.h"

static enum status parse(const char *text, const struct json_limits *limits, struct err *err)
{
    cJSON *root = NULL;
    enum status status = json_strict_parse(text, strlen(text), limits, &root, err);

    CHECK_EQ(root != NULL, status == STATUS_OK);
    cJSON_Delete(root);
    return status;
}

TEST(every_kind_of_value)
{
    static const char text[] = " {\"a\" : [1, -0, 0.5, 1e2, 1E-2, 1.25e+1, true, false, null],\r\n"
                               "\t\"b\":{}, \"c\":[], \"\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"} ";
    struct err err = {.text = ""};
    cJSON *root = NULL;

    CHECK_EQ(json_strict_parse(text, sizeof text - 1, NULL, &root, &err), STATUS_OK);
    CHECK_EQ(cJSON_GetArraySize(json_member(root, "a")), 9);
    CHECK_NEAR(cJSON_GetArrayItem(json_member(root, "a"), 5)->valuedouble, 12.5, 0);
    CHECK_STR(json_member(root, "")->valuestring, "\"\\/\b\f\n\r\t\xc3\xa9");
    CHECK(json_member(root, "A") == NULL);
    CHECK(json_member(json_member(root, "b"), "a") == NULL);
    CHECK(json_member(json_member(root, "nobody"), "a") == NULL);
    cJSON_Delete(root);
}

TEST(scalars_alone_are_values)
{
    static const char *const good[] = {"1", "-1.5", "\"x\"", "true", "null", " [] ", "0"};
    struct err err;

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        CHECK_EQ(parse(good[i], NULL, &err), STATUS_OK);
    CHECK_EQ(parse("", NULL, &err), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "JSON at byte 0: the text ends where a value was expected");
}

TEST(the_place_and_the_reason_are_told)
{
    static const char *const cases[][2] = {
        {"{\"a\":1} x", "JSON at byte 8: more text after the value"},
        {"[1,]", "JSON at byte 3: a value was expected"},
        {"{\"a\":1,}", "JSON at byte 7: a key in quotes was expected"},
        {"{\"a\" 1}", "JSON at byte 5: a colon was expected after a key"},
        {"[1 2]", "JSON at byte 3: a comma or the end of an object or array was expected"},
        {"[1", "JSON at byte 2: the text ends within an object or array"},
        {"\"ab", "JSON at byte 3: the text ends within a string"},
        {"\"a\nb\"", "JSON at byte 2: a raw control character in a string"},
        {"\"\\u0000\"", "JSON at byte 7: \\u0000 in a string"},
        {"\"\xff\"", "JSON at byte 1: not UTF-8"},
        {"01", "JSON at byte 1: a number with a leading zero"},
        {"-1e400", "JSON at byte 6: a number too large for a double"},
        {"{\"a\":1,\"b\":{\"c\":1,\"\\u0063\":2}}", "JSON: the key \"c\" is there twice"},
        {"[[{\"x\\ny\":1,\"x\\ny\":1}]]", "JSON: the key \"x?y\" is there twice"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {.text = ""};

        CHECK_EQ(parse(cases[i][0], NULL, &err), STATUS_BAD_INPUT);
        CHECK_STR(err.text, cases[i][1]);
    }
}

TEST(depth_and_tokens_are_capped)
{
    static const struct json_limits small = {.depth_max = 2, .token_max = 6};
    struct err err = {.text = ""};

    CHECK_EQ(parse("[[1,2,3,4]]", &small, &err), STATUS_OK);
    CHECK_EQ(parse("[[1,2,3,4,5]]", &small, &err), STATUS_TOO_BIG);
    CHECK_STR(err.text, "JSON at byte 10: more than 6 values and keys");
    CHECK_EQ(parse("{\"a\":{\"b\":1}}", &small, &err), STATUS_OK);
    CHECK_EQ(parse("{\"a\":1,\"b\":2,\"c\":3}", &small, &err), STATUS_TOO_BIG);
    CHECK_EQ(parse("[[[]]]", &small, &err), STATUS_TOO_BIG);
    CHECK_STR(err.text, "JSON at byte 2: nested deeper than 2");
    CHECK_EQ(parse("[[],[],[]]", &small, &err), STATUS_OK);
}

/* `{"k0":0,"k1":1,...}`, the last key `last`. */
static enum status parse_many(uint32_t count, const char *last, struct err *err)
{
    struct buf buf = {0};
    enum status status;

    buf_add_text(&buf, "{");
    for (uint32_t i = 0; i < count; i++)
        buf_printf(&buf, "\"k%u\":[],", i);
    buf_printf(&buf, "\"%s\":0}", last);
    buf_add(&buf, "", 1);
    status = parse(buf.bytes, NULL, err);
    buf_free(&buf);
    return status;
}

TEST(repeated_keys_among_many)
{
    struct err err;

    for (uint32_t count = 1; count < 10000; count *= 3) {
        CHECK_EQ(parse_many(count, "K0", &err), STATUS_OK);
        CHECK_EQ(parse_many(count, "k0", &err), STATUS_BAD_INPUT);
        CHECK_STR(err.text, "JSON: the key \"k0\" is there twice");
    }
}

/* The text ends at its length: bytes after that are not read. */
TEST(the_length_counts_not_a_nul)
{
    struct err err;
    cJSON *root = NULL;

    CHECK_EQ(json_strict_parse("12345", 2, NULL, &root, &err), STATUS_OK);
    CHECK_NEAR(root->valuedouble, 12, 0);
    cJSON_Delete(root);
    CHECK_EQ(json_strict_parse("1\0", 2, NULL, &root, &err), STATUS_BAD_INPUT);
    CHECK(root == NULL);
}

TEST_MAIN
