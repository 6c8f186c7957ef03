/* What launcherd finds in the error file of a failed rank. */
#include "launcherd/shim/exception.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

static struct exception found;
static struct err err;

static enum status read_text(const char *text)
{
    memset(&found, 'x', sizeof found);
    return exception_from_json(text, strlen(text), &found, &err);
}

#define STACK                                                                                      \
    "Traceback (most recent call last):\\n  File \\\"t.py\\\", line 6, in main\\nValueError: "     \
    "boom\\nsecond line\\n"
#define RECORD(message, stack, time)                                                               \
    "{\"message\": {\"message\": \"" message "\", \"extraInfo\": {\"py_callstack\": \"" stack      \
    "\", \"timestamp\": " time "}}}"

TEST(what_record_writes)
{
    CHECK_EQ(read_text(RECORD("ValueError: boom\\nsecond line", STACK, "\"1795381164\"")),
             STATUS_OK);
    CHECK_STR(found.line, "ValueError: boom");
    CHECK_STR(found.text, "Traceback (most recent call last):\n  File \"t.py\", line 6, in main\n"
                          "ValueError: boom\nsecond line");
    CHECK_EQ(found.raised_s, 1795381164);
}

TEST(the_flat_form)
{
    CHECK_EQ(read_text("{\"message\": \"out of disk\", \"timestamp\": 12}"), STATUS_OK);
    CHECK_STR(found.line, "out of disk");
    CHECK_STR(found.text, "out of disk");
    CHECK_EQ(found.raised_s, 12);
    CHECK_EQ(read_text("{\"message\": \"out of disk\"}"), STATUS_OK);
    CHECK_EQ(found.raised_s, 0);
}

TEST(what_is_left_out)
{
    CHECK_EQ(read_text(RECORD("", STACK, "\"x\"")), STATUS_OK);
    CHECK_STR(found.line, "second line");
    CHECK_EQ(found.raised_s, 0);
    CHECK_EQ(read_text("{\"message\": {\"message\": \"KeyboardInterrupt: \"}}"), STATUS_OK);
    CHECK_STR(found.line, "KeyboardInterrupt");
    CHECK_EQ(read_text(RECORD("A: b", "no traceback", "1e300")), STATUS_OK);
    CHECK_STR(found.text, "no traceback\nA: b");
    CHECK_EQ(found.raised_s, 0);
}

TEST(what_is_no_error_file)
{
    static const char *const bad[] = {
        "",
        "{",
        "null",
        "[]",
        "{}",
        "{\"message\": 3}",
        "{\"message\": {}}",
        "{\"message\": {\"message\": [\"a\"]}}",
        "{\"message\": \" \\n\"}",
        "{\"message\": \"a\\u0000b\"}",
        "{\"message\": \"a\", \"message\": \"b\"}",
        "{\"message\": \"a\"} more",
        "{\"message\": \"\xff\"}",
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err.text[0] = '\0';
        CHECK_EQ(read_text(bad[i]), STATUS_BAD_INPUT);
        CHECK(err.text[0] != '\0');
        CHECK_EQ(found.line[0], 'x');
    }
    CHECK_EQ(read_text("{\"message\": [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]}"), STATUS_TOO_BIG);
}

TEST(a_large_file_is_refused_and_a_large_text_is_cut)
{
    static char large[EXCEPTION_FILE_BYTES_MAX + 1];
    size_t at = (size_t)snprintf(large, sizeof large,
                                 "{\"message\": {\"message\": \"E: last\", "
                                 "\"extraInfo\": {\"py_callstack\": \"");

    while (at < sizeof large - 100)
        at += (size_t)snprintf(large + at, sizeof large - at, "  File \\\"%zu\\\"\\n", at);
    (void)snprintf(large + at, sizeof large - at, "E: last\\n\"}}}");
    CHECK_EQ(read_text(large), STATUS_OK);
    CHECK_STR(found.line, "E: last");
    CHECK(strncmp(found.text, "...\n  File \"", 12) == 0);
    CHECK_STR(found.text + strlen(found.text) - 8, "\nE: last");
    CHECK(strlen(found.text) > TAIL_BYTES_MAX - 40);
    CHECK_EQ(exception_from_json(large, sizeof large, &found, &err), STATUS_TOO_BIG);
    CHECK_STR(err.text, "it is larger than 256 KiB");
}

TEST(what_cannot_be_shown_is_replaced)
{
    CHECK_EQ(read_text("{\"message\": \"E: \\u001b[31mred\\u0007\\tx\\u0085\\n\\r\\u00e9\"}"),
             STATUS_OK);
    CHECK_STR(found.line, "E: ?[31mred??x?");
    CHECK_STR(found.text, "E: ?[31mred?\tx?\n?\xc3\xa9");
}

TEST(the_root_cause_in_an_error_file)
{
    CHECK_EQ(read_text(RECORD("ValueError: b",
                              "Traceback (most recent call last):\\nKeyError: 'a'\\n\\nDuring "
                              "handling of the above exception, another exception "
                              "occurred:\\n\\nTraceback (most recent call last):\\nValueError: "
                              "b\\n",
                              "12")),
             STATUS_OK);
    CHECK_STR(found.line, "KeyError: 'a'; then ValueError: b");
    CHECK_EQ(found.raised_s, 12);
}

TEST(a_plain_text)
{
    CHECK(exception_from_text("\n cannot read a.txt: no\nsecond\n", &found));
    CHECK_STR(found.line, "cannot read a.txt: no");
    CHECK_STR(found.text, "cannot read a.txt: no\nsecond");
    CHECK(!exception_from_text(" \n", &found));
}

TEST_MAIN
