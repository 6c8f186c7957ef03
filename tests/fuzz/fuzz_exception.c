/* The error file and the output of a rank that failed: refused with a sentence, or texts that a report
 * can carry. The output gives the same in one piece as byte for byte. */
#include <string.h>

#include "common/utf8.h"
#include "launcherd/cause/causes.h"
#include "launcherd/shim/exception.h"
#include "tests/fuzz/target.h"

#define STACK                                                                                      \
    "Traceback (most recent call last):\n  File \"t.py\", line 6, in main\n    "                   \
    "raise\nValueError: no\n"

static const char *const examples[] = {
    "{\"message\": {\"message\": \"ValueError: no\", \"extraInfo\": {\"py_callstack\": "
    "\"Traceback\\n "
    "File\\nValueError: no\\n\", \"timestamp\": \"1795381164\"}}}",
    "{\"message\": \"no\", \"timestamp\": 12}",
    "step 1\n" STACK
    "\nDuring handling of the above exception, another exception occurred:\n\n" STACK,
    "[rank12]: Traceback (most recent call last):\n[rank12]:   File\n[rank12]: KeyError: "
    "'a'\nbye\n",
    "  File \"t.py\", line 3\n    def (\n        ^\nSyntaxError: invalid syntax\n",
    "  + Exception Group Traceback (most recent call last):\n  |   File\n  | ExceptionGroup: two\n",
    "terminate called after throwing an instance of 'E'\n  what():  no\nframe #0\n",
    "Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n  File \"a\"\n",
    "Exception in thread T:\n" STACK
    " 1%|#\r 2%|##\n\x1b[31mrun.sh: line 3: x: command not found\n",
};

void fuzz_corpus(fuzz_add *add)
{
    for (size_t i = 0; i < 600; i++) { /* more than there are broken inputs of messages */
        const char *example = examples[i % (sizeof examples / sizeof examples[0])];

        add(example, strlen(example));
    }
}

static void check(const char line[REASON_BYTES_MAX], const char text[TAIL_BYTES_MAX])
{
    const size_t line_bytes = strnlen(line, REASON_BYTES_MAX);
    const size_t text_bytes = strnlen(text, TAIL_BYTES_MAX);

    FUZZ_CHECK(line_bytes < REASON_BYTES_MAX && text_bytes < TAIL_BYTES_MAX);
    FUZZ_CHECK(utf8_is_valid(line, line_bytes) && utf8_is_valid(text, text_bytes));
    for (size_t i = 0; i < line_bytes; i++)
        FUZZ_CHECK(!utf8_is_control(line + i, line_bytes - i));
    for (size_t i = 0; i < text_bytes; i++)
        FUZZ_CHECK(text[i] == '\n' || text[i] == '\t' ||
                   !utf8_is_control(text + i, text_bytes - i));
}

/* The first byte says how the rank ended, and which bytes come by which stream. */
static void print_all(struct causes *causes, const uint8_t *data, size_t byte_count, size_t piece)
{
    memset(causes, 0, sizeof *causes);
    causes_open(causes, (data[0] & 1) != 0);
    for (size_t at = 0; at < byte_count; at += piece) {
        const size_t left = byte_count - at;

        causes_add(causes, (data[0] & 2) != 0,
                   (struct text){(const char *)data + at, left < piece ? left : piece}, at);
    }
}

static void check_output(const uint8_t *data, size_t byte_count)
{
    static const uint32_t signals[] = {0, 0, 0, 6, 9, 11};
    const struct cause_end end = {.exit_code = data[0] >> 5,
                                  .signal = signals[data[0] >> 2 & 3],
                                  .is_running = data[0] >> 4 == 7};
    static struct causes causes, again;
    char tail[TAIL_BYTES_MAX];
    struct cause cause, other;

    memset(&cause, 'x', sizeof cause);
    print_all(&causes, data, byte_count, byte_count);
    if (causes_best(&causes, &end, &cause))
        check(cause.line, cause.text);
    print_all(&again, data, byte_count, 1);
    memset(&other, 'x', sizeof other);
    (void)causes_best(&again, &end, &other);
    FUZZ_CHECK(strncmp(cause.line, other.line, sizeof cause.line) == 0);
    causes_tail(&causes, 1 + data[0] % 7, tail);
    FUZZ_CHECK(utf8_is_valid(tail, strnlen(tail, sizeof tail)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    struct exception exception;
    struct err err = {.text = ""};

    memset(&exception, 'x', sizeof exception);
    if (exception_from_json((const char *)data, byte_count, &exception, &err) == STATUS_OK)
        check(exception.line, exception.text);
    else
        FUZZ_CHECK(err.text[0] != '\0' && exception.line[0] == 'x');
    if (byte_count > 0)
        check_output(data, byte_count);
    return 0;
}
