#include "launcherd/shim/exception.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/json_strict.h"
#include "common/utf8.h"
#include "launcherd/cause/reader.h"

#define CUT_MARK "...\n"

/* The last `bytes_max` bytes. Begins at the first new line in them, if there is one. */
static struct text last_bytes(struct text text, size_t bytes_max)
{
    struct text last = text;
    const char *feed;

    if (text.count <= bytes_max)
        return text;
    last.bytes += text.count - bytes_max;
    last.count = bytes_max;
    feed = memchr(last.bytes, '\n', last.count);
    if (feed != NULL && feed + 1 < last.bytes + last.count) {
        last.count -= (size_t)(feed + 1 - last.bytes);
        last.bytes = feed + 1;
    }
    return last;
}

static void begin_text(struct exception *exception, bool is_cut)
{
    exception->text[0] = '\0';
    if (is_cut)
        text_append(exception->text, sizeof exception->text,
                    (struct text){CUT_MARK, strlen(CUT_MARK)});
}

static void put_text(struct exception *exception, struct text text)
{
    const struct text last = last_bytes(text, sizeof exception->text - sizeof CUT_MARK - 1);

    begin_text(exception, last.count < text.count);
    text_append(exception->text, sizeof exception->text, last);
}

bool exception_from_text(const char *text, struct exception *exception)
{
    const struct text all = text_trim((struct text){text, strlen(text)});

    if (all.count == 0)
        return false;
    exception->raised_s = 0;
    cause_first_line(all, exception->line);
    put_text(exception, all);
    return true;
}

/* -- an error file ----------------------------------------------------------------------------- */

static struct text string_of(const cJSON *value)
{
    const char *text = cJSON_IsString(value) ? value->valuestring : "";

    return (struct text){text, strlen(text)};
}

/* The value of a number, or of a string that is a number; 0: neither. */
static int64_t seconds_of(const cJSON *value)
{
    double number = cJSON_IsNumber(value) ? value->valuedouble : 0;
    char *end;

    if (cJSON_IsString(value)) {
        number = strtod(value->valuestring, &end);
        if (end == value->valuestring || *end != '\0')
            number = 0;
    }
    return number > 0 && number < 1e12 ? (int64_t)number : 0; /* false for a NaN */
}

/* Sets exception->text. `stack` normally ends with `message`; if it does not (somebody wrote the
 * file by hand), the text has both. */
static void put_both(struct exception *exception, struct text stack, struct text message)
{
    const size_t room = sizeof exception->text - sizeof CUT_MARK - 2;
    struct text last = last_bytes(message, room), rest;

    if (stack.count >= message.count &&
        (message.count == 0 ||
         memcmp(stack.bytes + stack.count - message.count, message.bytes, message.count) == 0)) {
        put_text(exception, stack);
        return;
    }
    if (stack.count == 0 || last.count == room) {
        put_text(exception, message);
        return;
    }
    rest = last_bytes(stack, room - last.count);
    begin_text(exception, rest.count < stack.count);
    text_append(exception->text, sizeof exception->text, rest);
    text_append(exception->text, sizeof exception->text, (struct text){"\n", 1});
    text_append(exception->text, sizeof exception->text, last);
}

static void take_cause(void *context, const struct cause *cause)
{
    *(struct cause *)context = *cause;
}

/* exception->line has the last exception. If a chain led to it, it gets the first one, too. */
static void put_root_of(struct exception *exception, struct text stack)
{
    struct cause_reader reader = {0};
    struct cause cause = {0};
    size_t next;

    for (size_t at = 0; at < stack.count; at = next)
        cause_reader_line(&reader, text_line(stack, at, &next), at, 0, take_cause, &cause);
    (void)cause_reader_open(&reader, &cause);
    if (strstr(cause.line, "; then ") != NULL)
        (void)snprintf(exception->line, sizeof exception->line, "%s", cause.line);
}

static enum status from_object(const cJSON *root, struct exception *exception, struct err *err)
{
    const cJSON *outer = json_member(root, "message"), *extra = json_member(outer, "extraInfo");
    const bool is_flat = cJSON_IsString(outer);
    const struct text message =
        text_trim(string_of(is_flat ? outer : json_member(outer, "message")));
    const struct text stack = text_trim(string_of(json_member(extra, "py_callstack")));
    struct text line = message;

    if (message.count == 0 && stack.count == 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "it has no message");
    for (size_t at = 0; message.count == 0 && at < stack.count;)
        line = text_line(stack, at, &at); /* ends with the last line */
    exception->raised_s = seconds_of(json_member(is_flat ? root : extra, "timestamp"));
    cause_first_line(line, exception->line);
    put_root_of(exception, stack);
    put_both(exception, stack, message);
    return STATUS_OK;
}

enum status exception_from_json(const char *bytes, size_t byte_count, struct exception *exception,
                                struct err *err)
{
    enum status status;
    cJSON *root = NULL;

    if (byte_count > EXCEPTION_FILE_BYTES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "it is larger than %u KiB",
                       EXCEPTION_FILE_BYTES_MAX >> 10);
    status = json_strict_parse(bytes, byte_count, NULL, &root, err);
    if (status == STATUS_OK)
        status = from_object(root, exception, err);
    cJSON_Delete(root);
    return status;
}
