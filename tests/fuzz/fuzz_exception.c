/* The error file and the output of a rank that failed: refused with a sentence, or texts that a report
 * can carry. */
#include <string.h>

#include "common/utf8.h"
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
};

void fuzz_corpus(fuzz_add *add)
{
    for (size_t i = 0; i < 600; i++) { /* more than there are broken inputs of messages */
        const char *example = examples[i % (sizeof examples / sizeof examples[0])];

        add(example, strlen(example));
    }
}

static void check(const struct exception *exception)
{
    const size_t line = strnlen(exception->line, sizeof exception->line);
    const size_t text = strnlen(exception->text, sizeof exception->text);

    FUZZ_CHECK(line < sizeof exception->line && text < sizeof exception->text);
    FUZZ_CHECK(utf8_is_valid(exception->line, line) && utf8_is_valid(exception->text, text));
    for (size_t i = 0; i < line; i++)
        FUZZ_CHECK(!utf8_is_control(exception->line + i, line - i));
    for (size_t i = 0; i < text; i++)
        FUZZ_CHECK(exception->text[i] == '\n' || exception->text[i] == '\t' ||
                   !utf8_is_control(exception->text + i, text - i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    struct exception exception;
    struct err err = {.text = ""};

    memset(&exception, 'x', sizeof exception);
    if (exception_from_json((const char *)data, byte_count, &exception, &err) == STATUS_OK)
        check(&exception);
    else
        FUZZ_CHECK(err.text[0] != '\0' && exception.line[0] == 'x');
    memset(&exception, 'x', sizeof exception);
    if (exception_from_output((const char *)data, byte_count, &exception))
        check(&exception);
    return 0;
}
