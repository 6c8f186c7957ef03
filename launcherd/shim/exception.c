#include "launcherd/shim/exception.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/json_strict.h"
#include "common/utf8.h"

#define MESSAGE_LINES_MAX 16u /* most lines of an exception's message after the first */
#define LINES_AFTER_MAX 32u   /* more lines than this after an exception: the program went on */
#define CUT_MARK "...\n"
#define ROOT_BYTES_MAX 110 /* most bytes of the root cause in exception->line */
#define LAST_BYTES_MAX 136 /* most bytes of the last exception after the root cause */

struct text {
    const char *bytes;
    size_t count;
};

/* -- texts ------------------------------------------------------------------------------------- */

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

static struct text trim(struct text text)
{
    while (text.count > 0 && is_blank(text.bytes[text.count - 1]))
        text.count--;
    while (text.count > 0 && is_blank(text.bytes[0])) {
        text.bytes++;
        text.count--;
    }
    return text;
}

/* The line at offset `at`, without its line feed; `*next` gets the offset of the next line. */
static struct text line_at(struct text text, size_t at, size_t *next)
{
    const char *from = text.bytes + at, *end = memchr(from, '\n', text.count - at);
    const size_t bytes = end != NULL ? (size_t)(end - from) : text.count - at;

    *next = at + bytes + (end != NULL);
    return (struct text){from, bytes};
}

static bool starts_with(struct text text, const char *start)
{
    const size_t bytes = strlen(start);

    return text.count >= bytes && memcmp(text.bytes, start, bytes) == 0;
}

static bool ends_with(struct text text, const char *end)
{
    const size_t bytes = strlen(end);

    return text.count >= bytes && memcmp(text.bytes + text.count - bytes, end, bytes) == 0;
}

/* Appends what fits. Line feeds and tabs stay; '?' replaces whatever else is not printable. */
static void append(char *out, size_t out_bytes, struct text text)
{
    const size_t used = strlen(out);

    (void)utf8_printable_lines(text.bytes, text.count, out + used, out_bytes - used);
}

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

/* Sets exception->line to the first line of `text`, without a colon that no message follows, as in
 * "KeyboardInterrupt: ". */
static void put_line(struct exception *exception, struct text text)
{
    size_t next;

    text = trim(line_at(trim(text), 0, &next));
    if (text.count > 0 && text.bytes[text.count - 1] == ':')
        text.count--;
    utf8_printable(text.bytes, text.count, exception->line, sizeof exception->line);
}

static void begin_text(struct exception *exception, bool is_cut)
{
    exception->text[0] = '\0';
    if (is_cut)
        append(exception->text, sizeof exception->text, (struct text){CUT_MARK, strlen(CUT_MARK)});
}

static void put_text(struct exception *exception, struct text text)
{
    const struct text last = last_bytes(text, sizeof exception->text - sizeof CUT_MARK - 1);

    begin_text(exception, last.count < text.count);
    append(exception->text, sizeof exception->text, last);
}

bool exception_from_text(const char *text, struct exception *exception)
{
    const struct text all = trim((struct text){text, strlen(text)});

    if (all.count == 0)
        return false;
    exception->raised_s = 0;
    put_line(exception, all);
    put_text(exception, all);
    return true;
}

/* -- an error file ----------------------------------------------------------------------------- */

static struct text text_of(const cJSON *value)
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
    append(exception->text, sizeof exception->text, rest);
    append(exception->text, sizeof exception->text, (struct text){"\n", 1});
    append(exception->text, sizeof exception->text, last);
}

static void put_root_of(struct exception *exception, struct text stack);

static enum status from_object(const cJSON *root, struct exception *exception, struct err *err)
{
    const cJSON *outer = json_member(root, "message"), *extra = json_member(outer, "extraInfo");
    const bool is_flat = cJSON_IsString(outer);
    const struct text message = trim(text_of(is_flat ? outer : json_member(outer, "message")));
    const struct text stack = trim(text_of(json_member(extra, "py_callstack")));
    struct text line = message;

    if (message.count == 0 && stack.count == 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "it has no message");
    for (size_t at = 0; message.count == 0 && at < stack.count;)
        line = line_at(stack, at, &at); /* ends with the last line */
    exception->raised_s = seconds_of(json_member(is_flat ? root : extra, "timestamp"));
    put_line(exception, line);
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

/* -- an output --------------------------------------------------------------------------------- */

/* What Python prints between the tracebacks of chained exceptions. */
static const char *const links[] = {
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:"};

struct finder {
    size_t begin;    /* offset of the traceback that is being read */
    bool is_inside;  /* between its first line and its exception line */
    bool is_bare;    /* it began with a "File" line: a syntax error in the program itself */
    bool is_message; /* the lines after the exception may belong to it */
    bool is_found;
    bool is_linked; /* the next traceback is chained to the one before it */
    size_t found_begin, found_end, found_line; /* offsets in the last complete traceback */
    size_t root_line;                          /* offset of the first exception of its chain */
    uint32_t message_lines, lines_after;       /* of its message; non-blank ones after it */
};

/* Removes "[rank0]: ", and the frame of an exception group ("  | "). */
static struct text without_prefix(struct text line)
{
    static const char digits[] = "0123456789";
    size_t at = 5;

    if (starts_with(line, "[rank")) {
        while (at < line.count && strchr(digits, line.bytes[at]) != NULL && line.bytes[at] != '\0')
            at++;
        if (at > 5 && at + 1 < line.count && memcmp(line.bytes + at, "]:", 2) == 0) {
            at += 2;
            at += at < line.count && line.bytes[at] == ' ';
            line.bytes += at;
            line.count -= at;
        }
    }
    if (starts_with(line, "  + ") || starts_with(line, "  | ")) {
        line.bytes += 4;
        line.count -= 4;
    }
    return line;
}

/* True for "ValueError: no", "torch.OutOfMemoryError: ...", "KeyboardInterrupt". */
static bool is_exception(struct text line)
{
    size_t at = 0;

    line = trim(line);
    while (at < line.count &&
           (line.bytes[at] == '_' || line.bytes[at] == '.' || (line.bytes[at] & 0x80) != 0 ||
            (line.bytes[at] >= '0' && line.bytes[at] <= '9') ||
            (line.bytes[at] >= 'A' && line.bytes[at] <= 'Z') ||
            (line.bytes[at] >= 'a' && line.bytes[at] <= 'z')))
        at++;
    return at > 0 && (line.bytes[0] < '0' || line.bytes[0] > '9') &&
           (at == line.count || line.bytes[at] == ':');
}

static bool is_syntax_error(struct text line)
{
    return starts_with(line, "SyntaxError:") || starts_with(line, "IndentationError:") ||
           starts_with(line, "TabError:");
}

static void take_exception(struct finder *finder, size_t at, size_t next)
{
    if (!finder->is_linked || !finder->is_found)
        finder->root_line = at;
    finder->is_inside = finder->is_linked = false;
    finder->is_found = finder->is_message = true;
    finder->message_lines = finder->lines_after = 0;
    finder->found_begin = finder->begin;
    finder->found_line = at;
    finder->found_end = next;
}

static bool is_link(struct text line)
{
    line = trim(line);
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++)
        if (line.count == strlen(links[i]) && memcmp(line.bytes, links[i], line.count) == 0)
            return true;
    return false;
}

static void take_line(struct finder *finder, struct text line, size_t at, size_t next)
{
    const bool is_first = ends_with(trim(line), "Traceback (most recent call last):");
    const bool is_file = starts_with(line, "  File \"");

    if (is_first || (is_file && !finder->is_inside)) {
        finder->begin = at;
        finder->is_inside = true;
        finder->is_bare = !is_first;
        finder->is_message = false;
        return;
    }
    if (finder->is_inside && line.count > 0 && !is_blank(line.bytes[0]) && is_exception(line) &&
        (!finder->is_bare || is_syntax_error(line))) {
        take_exception(finder, at, next);
        return;
    }
    if (is_link(line)) {
        finder->is_linked = true;
        finder->is_message = finder->is_inside = false;
        return;
    }
    if (!finder->is_message) { /* a stack frame, or a line that another thread printed in between */
        finder->lines_after += !finder->is_inside && trim(line).count > 0;
        return;
    }
    finder->is_message = trim(line).count > 0 && finder->message_lines++ < MESSAGE_LINES_MAX;
    if (finder->is_message)
        finder->found_end = next;
}

static struct finder find_last(struct text all)
{
    struct finder finder = {0};
    size_t next;

    for (size_t at = 0; at < all.count; at = next) {
        const struct text line = line_at(all, at, &next);

        take_line(&finder, without_prefix(line), at, next);
    }
    return finder;
}

/* exception->line has the last exception of a chain. Puts the first one, the root cause, before
 * it. */
static void put_root(struct exception *exception, struct text all, const struct finder *finder)
{
    char last[sizeof exception->line];
    struct exception root;
    size_t next;

    if (!finder->is_found || finder->root_line == finder->found_line)
        return;
    put_line(&root, without_prefix(line_at(all, finder->root_line, &next)));
    if (strcmp(root.line, exception->line) == 0)
        return; /* the same exception was raised again */
    memcpy(last, exception->line, sizeof last);
    (void)snprintf(exception->line, sizeof exception->line, "%.*s; then %.*s", ROOT_BYTES_MAX,
                   root.line, LAST_BYTES_MAX, last);
}

static void put_root_of(struct exception *exception, struct text stack)
{
    const struct finder finder = find_last(stack);

    put_root(exception, stack, &finder);
}

bool exception_from_output(const char *bytes, size_t byte_count, struct exception *exception)
{
    const struct text all = {bytes, byte_count};
    const struct finder finder = find_last(all);
    struct text last;
    size_t next;

    if (!finder.is_found || finder.lines_after > LINES_AFTER_MAX)
        return false;
    exception->raised_s = 0;
    put_line(exception, without_prefix(line_at(all, finder.found_line, &next)));
    put_root(exception, all, &finder);
    last =
        last_bytes((struct text){bytes + finder.found_begin, finder.found_end - finder.found_begin},
                   sizeof exception->text - sizeof CUT_MARK - 1);
    begin_text(exception, last.bytes != bytes + finder.found_begin);
    for (size_t at = 0; at < last.count; at = next) {
        const struct text line = line_at(last, at, &next);

        append(exception->text, sizeof exception->text, without_prefix(line));
        append(exception->text, sizeof exception->text, (struct text){"\n", 1});
    }
    return true;
}
