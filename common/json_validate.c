/* The validator of json_strict.h: a stack of open containers instead of recursion. libc alone. */
#include "common/json_strict.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "common/utf8.h"

#define NUMBER_CHARS_MAX 63u /* cJSON 1.7.15 cuts a longer number */

enum expect {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END, /* after `[` */
    EXPECT_KEY_OR_END,   /* after `{` */
    EXPECT_KEY,
    EXPECT_COMMA_OR_END,
    EXPECT_NOTHING,
};

struct scan {
    const char *text;
    size_t at, byte_count;
    uint32_t depth, depth_max, token_count, token_max;
    bool is_object[JSON_DEPTH_CAP]; /* [depth] */
    struct err *err;
};

static enum status refuse(const struct scan *scan, const char *what)
{
    return err_set(scan->err, STATUS_BAD_INPUT, 0, "JSON at byte %zu: %s", scan->at, what);
}

static int peek(const struct scan *scan)
{
    return scan->at < scan->byte_count ? (unsigned char)scan->text[scan->at] : -1;
}

static void skip_space(struct scan *scan)
{
    while (peek(scan) == ' ' || peek(scan) == '\t' || peek(scan) == '\n' || peek(scan) == '\r')
        scan->at++;
}

static enum status count_token(struct scan *scan)
{
    if (scan->token_count >= scan->token_max)
        return err_set(scan->err, STATUS_TOO_BIG, 0,
                       "JSON at byte %zu: more than %u values and keys", scan->at, scan->token_max);
    scan->token_count++;
    return STATUS_OK;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

/* The value of four hex digits, or -1. Moves past them. */
static int32_t scan_hex4(struct scan *scan)
{
    int32_t value = 0;

    for (int i = 0; i < 4; i++) {
        int c = peek(scan);

        if (is_digit(c))
            value = value * 16 + (c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value * 16 + (c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            value = value * 16 + (c - 'A' + 10);
        else
            return -1;
        scan->at++;
    }
    return value;
}

/* Behind "\u". RFC 8259, section 7: beyond the basic plane, two of them, a high half and a low
 * half. */
static enum status scan_unicode_escape(struct scan *scan)
{
    int32_t code = scan_hex4(scan);

    if (code < 0)
        return refuse(scan, "\\u needs four hex digits");
    if (code == 0)
        return refuse(scan, "\\u0000 in a string");
    if (code >= 0xdc00 && code <= 0xdfff)
        return refuse(scan, "the low half of a surrogate pair without the high one");
    if (code < 0xd800 || code > 0xdbff)
        return STATUS_OK;
    if (scan->byte_count - scan->at < 2 || memcmp(scan->text + scan->at, "\\u", 2) != 0)
        return refuse(scan, "half of a surrogate pair");
    scan->at += 2;
    code = scan_hex4(scan);
    if (code < 0xdc00 || code > 0xdfff)
        return refuse(scan, "half of a surrogate pair");
    return STATUS_OK;
}

static enum status scan_escape(struct scan *scan)
{
    int c;

    scan->at++;
    c = peek(scan);
    if (c == 'u') {
        scan->at++;
        return scan_unicode_escape(scan);
    }
    if (c <= 0 || strchr("\"\\/bfnrt", c) == NULL)
        return refuse(scan, "an unknown escape in a string");
    scan->at++;
    return STATUS_OK;
}

static enum status scan_string(struct scan *scan)
{
    enum status status;
    size_t count;
    int c;

    scan->at++;
    for (c = peek(scan); c != '"'; c = peek(scan)) {
        if (c < 0)
            return refuse(scan, "the text ends within a string");
        if (c < 0x20)
            return refuse(scan, "a raw control character in a string");
        if (c == '\\') {
            status = scan_escape(scan);
            if (status != STATUS_OK)
                return status;
            continue;
        }
        count = utf8_next(scan->text + scan->at, scan->byte_count - scan->at);
        if (count == 0)
            return refuse(scan, "not UTF-8");
        scan->at += count;
    }
    scan->at++;
    return STATUS_OK;
}

/* At least one digit; false where there is none. */
static bool scan_digits(struct scan *scan)
{
    size_t first = scan->at;

    while (is_digit(peek(scan)))
        scan->at++;
    return scan->at > first;
}

static enum status check_finite(const struct scan *scan, size_t first)
{
    char number[NUMBER_CHARS_MAX + 1];
    size_t count = scan->at - first;

    if (count > NUMBER_CHARS_MAX)
        return refuse(scan, "a number of more than 63 characters");
    memcpy(number, scan->text + first, count);
    number[count] = '\0';
    if (!isfinite(strtod(number, NULL)))
        return refuse(scan, "a number too large for a double");
    return STATUS_OK;
}

static enum status scan_number(struct scan *scan)
{
    size_t first = scan->at;

    if (peek(scan) == '-')
        scan->at++;
    if (peek(scan) == '0') {
        scan->at++;
        if (is_digit(peek(scan)))
            return refuse(scan, "a number with a leading zero");
    } else if (!scan_digits(scan)) {
        return refuse(scan, "a value was expected");
    }
    if (peek(scan) == '.') {
        scan->at++;
        if (!scan_digits(scan))
            return refuse(scan, "a number without digits after its point");
    }
    if (peek(scan) == 'e' || peek(scan) == 'E') {
        scan->at++;
        if (peek(scan) == '+' || peek(scan) == '-')
            scan->at++;
        if (!scan_digits(scan))
            return refuse(scan, "a number without digits in its exponent");
    }
    return check_finite(scan, first);
}

static enum status scan_word(struct scan *scan, const char *word)
{
    size_t count = strlen(word);

    if (scan->byte_count - scan->at < count || memcmp(scan->text + scan->at, word, count) != 0)
        return refuse(scan, "a value was expected");
    scan->at += count;
    return STATUS_OK;
}

static enum expect expect_after_value(const struct scan *scan)
{
    return scan->depth == 0 ? EXPECT_NOTHING : EXPECT_COMMA_OR_END;
}

static enum status open_container(struct scan *scan, bool is_object, enum expect *expect)
{
    if (scan->depth >= scan->depth_max)
        return err_set(scan->err, STATUS_TOO_BIG, 0, "JSON at byte %zu: nested deeper than %u",
                       scan->at, scan->depth_max);
    scan->is_object[scan->depth++] = is_object;
    scan->at++;
    *expect = is_object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
    return STATUS_OK;
}

static enum status scan_value(struct scan *scan, enum expect *expect)
{
    enum status status = count_token(scan);
    int c = peek(scan);

    if (status != STATUS_OK)
        return status;
    if (c == '{' || c == '[')
        return open_container(scan, c == '{', expect);
    *expect = expect_after_value(scan);
    switch (c) {
    case -1:
        return refuse(scan, "the text ends where a value was expected");
    case '"':
        return scan_string(scan);
    case 't':
        return scan_word(scan, "true");
    case 'f':
        return scan_word(scan, "false");
    case 'n':
        return scan_word(scan, "null");
    default:
        return scan_number(scan);
    }
}

static enum status scan_key(struct scan *scan, enum expect *expect)
{
    enum status status = count_token(scan);

    if (status != STATUS_OK)
        return status;
    if (peek(scan) != '"')
        return refuse(scan, "a key in quotes was expected");
    status = scan_string(scan);
    if (status != STATUS_OK)
        return status;
    skip_space(scan);
    if (peek(scan) != ':')
        return refuse(scan, "a colon was expected after a key");
    scan->at++;
    *expect = EXPECT_VALUE;
    return STATUS_OK;
}

static enum status close_container(struct scan *scan, enum expect *expect)
{
    scan->depth--;
    scan->at++;
    *expect = expect_after_value(scan);
    return STATUS_OK;
}

static enum status scan_comma(struct scan *scan, enum expect *expect)
{
    if (peek(scan) != ',')
        return refuse(scan, peek(scan) < 0
                                ? "the text ends within an object or array"
                                : "a comma or the end of an object or array was expected");
    scan->at++;
    *expect = scan->is_object[scan->depth - 1] ? EXPECT_KEY : EXPECT_VALUE;
    return STATUS_OK;
}

static enum status scan_step(struct scan *scan, enum expect *expect)
{
    bool at_end = scan->depth > 0 && peek(scan) == (scan->is_object[scan->depth - 1] ? '}' : ']');

    switch (*expect) {
    case EXPECT_VALUE:
        return scan_value(scan, expect);
    case EXPECT_VALUE_OR_END:
        return at_end ? close_container(scan, expect) : scan_value(scan, expect);
    case EXPECT_KEY_OR_END:
        return at_end ? close_container(scan, expect) : scan_key(scan, expect);
    case EXPECT_KEY:
        return scan_key(scan, expect);
    case EXPECT_COMMA_OR_END:
        return at_end ? close_container(scan, expect) : scan_comma(scan, expect);
    case EXPECT_NOTHING:
        break;
    }
    return STATUS_OK;
}

static enum status scan_text(struct scan *scan)
{
    enum expect expect = EXPECT_VALUE;

    for (;;) {
        enum status status;

        skip_space(scan);
        if (expect == EXPECT_NOTHING)
            break;
        status = scan_step(scan, &expect);
        if (status != STATUS_OK)
            return status;
    }
    return scan->at < scan->byte_count ? refuse(scan, "more text after the value") : STATUS_OK;
}

enum status json_validate_at(const char *text, size_t byte_count, const struct json_limits *limits,
                             size_t *at, struct err *err)
{
    struct scan scan = {.text = text, .byte_count = byte_count, .err = err};
    enum status status;

    scan.depth_max = limits != NULL ? limits->depth_max : JSON_DEPTH_MAX;
    scan.token_max = limits != NULL ? limits->token_max : JSON_TOKENS_MAX;
    assert(scan.depth_max >= 1 && scan.depth_max <= JSON_DEPTH_CAP);
    status = scan_text(&scan);
    *at = scan.at;
    return status;
}

enum status json_validate(const char *text, size_t byte_count, const struct json_limits *limits,
                          struct err *err)
{
    size_t at;

    return json_validate_at(text, byte_count, limits, &at, err);
}
