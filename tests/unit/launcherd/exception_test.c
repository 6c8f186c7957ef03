/* What launcherd finds in the error file and the output of a failed rank. */
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

static bool read_output(const char *text)
{
    memset(&found, 'x', sizeof found);
    return exception_from_output(text, strlen(text), &found);
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
    CHECK(read_output("Traceback (most recent call last):\n  x\xff\nE: \x01\xc3\n"));
    CHECK_STR(found.line, "E: ??");
    CHECK_STR(found.text, "Traceback (most recent call last):\n  x?\nE: ??\n");
}

#define FRAMES "  File \"/w/train.py\", line 3, in <module>\n    main()\n    ^^^^^^\n"
#define FIRST "Traceback (most recent call last):\n"

TEST(a_traceback_at_the_end_of_an_output)
{
    CHECK(read_output("step 1\nstep 2\n" FIRST FRAMES "RuntimeError: shape mismatch\n"));
    CHECK_STR(found.line, "RuntimeError: shape mismatch");
    CHECK_STR(found.text, FIRST FRAMES "RuntimeError: shape mismatch\n");
    CHECK_EQ(found.raised_s, 0);
    CHECK(read_output(FIRST FRAMES "KeyboardInterrupt"));
    CHECK_STR(found.line, "KeyboardInterrupt");
}

TEST(the_last_of_several_tracebacks)
{
    CHECK(read_output(FIRST FRAMES
                      "KeyError: 'a'\n\nDuring handling of the above exception, another "
                      "exception occurred:\n\n" FIRST FRAMES
                      "torch.OutOfMemoryError: CUDA out of memory\n"
                      "[W1122 20:00:00 ProcessGroup.cpp:1] Warning: not destroyed\n\nbye\n"));
    CHECK_STR(found.line, "KeyError: 'a'; then torch.OutOfMemoryError: CUDA out of memory");
    CHECK_STR(found.text,
              FIRST FRAMES "torch.OutOfMemoryError: CUDA out of memory\n"
                           "[W1122 20:00:00 ProcessGroup.cpp:1] Warning: not destroyed\n");
    CHECK(read_output(FIRST FRAMES "KeyError: 'a'\n" FIRST FRAMES)); /* the second is cut off */
    CHECK_STR(found.line, "KeyError: 'a'");
}

#define HANDLING "\nDuring handling of the above exception, another exception occurred:\n\n"
#define CAUSE "\nThe above exception was the direct cause of the following exception:\n\n"

TEST(the_root_cause_of_a_chain_is_named_first)
{
    CHECK(read_output(FIRST FRAMES "KeyError: 'a'\n" CAUSE FIRST FRAMES
                                   "ValueError: no a\nin line 3\n" HANDLING FIRST FRAMES
                                   "RuntimeError: not closed\n"));
    CHECK_STR(found.line, "KeyError: 'a'; then RuntimeError: not closed");
    CHECK_STR(found.text, FIRST FRAMES "RuntimeError: not closed\n");
    CHECK(read_output("[rank1]: " FIRST "[rank1]: KeyError: 'a'\n"
                      "\n[rank1]: The above exception was the direct cause of the following "
                      "exception:\n\n[rank1]: " FIRST "[rank1]: ValueError: b\n"));
    CHECK_STR(found.line, "KeyError: 'a'; then ValueError: b");
    /* two that have nothing to do with each other */
    CHECK(read_output(FIRST FRAMES "KeyError: 'a'\n" HANDLING FIRST FRAMES
                                   "ValueError: b\n" FIRST FRAMES "OSError: c\n"));
    CHECK_STR(found.line, "OSError: c");
    /* the same one, raised again */
    CHECK(read_output(FIRST FRAMES "KeyError: 'a'\n" HANDLING FIRST FRAMES "KeyError: 'a'\n"));
    CHECK_STR(found.line, "KeyError: 'a'");
    /* the first one was cut off */
    CHECK(read_output("KeyError: 'a'\n" HANDLING FIRST FRAMES "ValueError: b\n"));
    CHECK_STR(found.line, "ValueError: b");
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

static void append(char text[4096], const char *more)
{
    const size_t length = strlen(text);

    CHECK(length + strlen(more) < 4096);
    memcpy(text + length, more, strlen(more) + 1);
}

/* A message of up to 16 lines, then 32 other lines. */
TEST(an_exception_that_was_caught_long_before)
{
    static char text[4096] = FIRST FRAMES "ValueError: handled\n\n";

    for (int i = 0; i < 32; i++)
        append(text, "step\n\n");
    CHECK(read_output(text));
    CHECK_STR(found.line, "ValueError: handled");
    append(text, "usage: wrong\n");
    CHECK(!read_output(text));
    append(text, FIRST FRAMES "KeyError: 'a'\n");
    CHECK(read_output(text));
    CHECK_STR(found.line, "KeyError: 'a'");
}

TEST(prefixes_of_torch_distributed)
{
    CHECK(read_output(
        "[rank12]: Traceback (most recent call last):\n[rank12]:   File \"a.py\", line 1\n"
        "[rank12]: ValueError: no: really\n[rank12]:W not ours\n"));
    CHECK_STR(found.line, "ValueError: no: really");
    CHECK_STR(found.text, "Traceback (most recent call last):\n  File \"a.py\", line "
                          "1\nValueError: no: really\nW not ours\n");
    CHECK(!read_output("[rank]: Traceback (most recent call last):\n[rank1\n[rank1]:\n"));
}

TEST(a_program_with_a_syntax_error)
{
    CHECK(read_output(
        "  File \"/w/train.py\", line 3\n    def (\n        ^\nSyntaxError: invalid syntax\n"));
    CHECK_STR(found.line, "SyntaxError: invalid syntax");
    CHECK(!read_output(
        "  File \"/w/train.py\", line 3\n    x\nValueError: of a traceback that is cut\n"));
}

TEST(a_group_of_exceptions)
{
    CHECK(read_output(
        "  + Exception Group Traceback (most recent call last):\n  |   File \"a.py\", line 1\n"
        "  | ExceptionGroup: two (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n    |   File \"a.py\"\n    | ValueError: 1\n"));
    CHECK_STR(found.line, "ExceptionGroup: two (2 sub-exceptions)");
}

TEST(an_output_without_a_traceback)
{
    static const char *const none[] = {
        "",
        "\n",
        "done\n",
        "ValueError: only a line\n",
        FIRST,
        FIRST FRAMES,
        FIRST FRAMES "- no exception -\n",
        FIRST FRAMES "1: not a name\n",
        "usage: train.py\ntrain.py: error: unrecognized arguments: --x\n",
    };

    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        CHECK(!read_output(none[i]));
}

TEST(the_end_of_a_long_message)
{
    static char text[3 * TAIL_BYTES_MAX] = FIRST FRAMES "E: first line of the message\n";

    for (size_t at = strlen(text); at < 3100; at = strlen(text))
        (void)snprintf(text + at, sizeof text - at, at < 3000 ? "x%01000zu\n" : "\n%zu\n", at);
    CHECK(read_output(text));
    CHECK_STR(found.line, "E: first line of the message");
    CHECK(strncmp(found.text, "...\nx0", 6) == 0);
}

TEST(a_plain_text)
{
    CHECK(exception_from_text("\n cannot read a.txt: no\nsecond\n", &found));
    CHECK_STR(found.line, "cannot read a.txt: no");
    CHECK_STR(found.text, "cannot read a.txt: no\nsecond");
    CHECK(!exception_from_text(" \n", &found));
}

TEST_MAIN
