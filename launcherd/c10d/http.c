#include "launcherd/c10d/http.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "launcherd/c10d/state.h"

/* Prefixes of our keys. Clients of c10d cannot have such keys, because theirs begin with "/". */
#define VALUE_PREFIX "horovod:"
#define ENDED_PREFIX "horovod!" /* of the same key: its rank has deleted it */
#define COUNT_PREFIX "horovod#" /* of a scope: the number of keys that are not deleted */
#define PREFIX_BYTES (sizeof VALUE_PREFIX - 1)
#define NAME_BYTES (PREFIX_BYTES + HTTP_PATH_BYTES_MAX)

/* -- reading ----------------------------------------------------------------------------------- */

bool http_begins(char first)
{
    return first == 'G' || first == 'P' || first == 'D' || first == 'H';
}

static enum scan_result bad(enum c10d_reason *reason, enum c10d_reason why)
{
    *reason = why;
    return SCAN_BAD;
}

/* Takes one line off `text`, without its end. The head must be complete. */
static struct text take_line(struct text *text)
{
    const char *end = memchr(text->bytes, '\n', text->byte_count);
    const size_t bytes = (size_t)(end - text->bytes);
    struct text line = {text->bytes, bytes > 0 && end[-1] == '\r' ? bytes - 1 : bytes};

    text->bytes += bytes + 1;
    text->byte_count -= bytes + 1;
    return line;
}

/* "GET /global/0 HTTP/1.1" */
static bool take_request_line(struct text line, struct http_request *request)
{
    static const char *const methods[] = {
        [HTTP_GET] = "GET ", [HTTP_PUT] = "PUT ", [HTTP_DELETE] = "DELETE "};
    const char *end;

    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        const size_t bytes = strlen(methods[i]);

        if (line.byte_count <= bytes || memcmp(line.bytes, methods[i], bytes) != 0)
            continue;
        request->method = (enum http_method)i;
        request->path = (struct text){line.bytes + bytes, line.byte_count - bytes};
        end = memchr(request->path.bytes, ' ', request->path.byte_count);
        if (end == NULL || (size_t)(request->path.bytes + request->path.byte_count - end) < 7 ||
            memcmp(end, " HTTP/1", 7) != 0)
            return false;
        request->is_last = line.bytes + line.byte_count - end == sizeof " HTTP/1.0" - 1 &&
                           line.bytes[line.byte_count - 1] == '0';
        request->path.byte_count = (size_t)(end - request->path.bytes);
        return true;
    }
    return false;
}

/* Whether the line has this word at `at`, in any case. `word` is in lower case. */
static bool has_at(struct text line, size_t at, const char *word)
{
    const size_t bytes = strlen(word);

    if (line.byte_count < at + bytes)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (tolower((unsigned char)line.bytes[at + i]) != word[i])
            return false;
    return true;
}

static bool is_header(struct text line, const char *name)
{
    const size_t bytes = strlen(name);

    return line.byte_count > bytes && line.bytes[bytes] == ':' && has_at(line, 0, name);
}

static bool is_space(char byte)
{
    return byte == ' ' || byte == '\t';
}

/* Parses the number after "content-length:". */
static bool take_length(struct text line, uint64_t *length)
{
    size_t at = sizeof "content-length:" - 1, digits = 0;

    while (at < line.byte_count && is_space(line.bytes[at]))
        at++;
    for (*length = 0; at < line.byte_count && isdigit((unsigned char)line.bytes[at]); at++)
        if (digits++ < 12)
            *length = *length * 10 + (uint64_t)(line.bytes[at] - '0');
    while (at < line.byte_count && is_space(line.bytes[at]))
        at++;
    return digits > 0 && digits <= 12 && at == line.byte_count;
}

/* Whether the list after "connection:" has this word. */
static bool has_word(struct text line, const char *word)
{
    const size_t bytes = strlen(word);

    for (size_t at = sizeof "connection:" - 1; at + bytes <= line.byte_count; at++) {
        const char before = line.bytes[at - 1];
        const char after = at + bytes < line.byte_count ? line.bytes[at + bytes] : ',';

        if (has_at(line, at, word) && (before == ':' || before == ',' || is_space(before)) &&
            (after == ',' || is_space(after)))
            return true;
    }
    return false;
}

/* Reads the headers: the length, and whether this is the last request. False: Transfer-Encoding, a length that is
 * no number, two different lengths, or a PUT without one: it is not known where the next request begins. */
static bool take_headers(struct text rest, struct http_request *request, uint64_t *length)
{
    bool has_length = request->method != HTTP_PUT;
    uint64_t said = UINT64_MAX;

    for (*length = 0; rest.byte_count > 0;) {
        const struct text line = take_line(&rest);

        if (is_header(line, "transfer-encoding"))
            return false;
        if (is_header(line, "connection"))
            request->is_last =
                has_word(line, "close") || (request->is_last && !has_word(line, "keep-alive"));
        if (!is_header(line, "content-length"))
            continue;
        if (!take_length(line, length) || (said != UINT64_MAX && said != *length))
            return false;
        said = *length;
        has_length = true;
    }
    return has_length;
}

/* The length of the head, including the empty line at its end; 0: it is not complete. */
static size_t head_bytes(struct text text)
{
    for (size_t i = 0; i < text.byte_count; i++) {
        if (text.bytes[i] != '\n')
            continue;
        if (i + 1 < text.byte_count && text.bytes[i + 1] == '\n')
            return i + 2;
        if (i + 2 < text.byte_count && text.bytes[i + 1] == '\r' && text.bytes[i + 2] == '\n')
            return i + 3;
    }
    return 0;
}

enum scan_result http_scan(struct text text, uint64_t message_bytes_max,
                           struct http_request *request, enum c10d_reason *reason)
{
    const struct text start = {
        text.bytes, text.byte_count < HTTP_HEAD_BYTES_MAX ? text.byte_count : HTTP_HEAD_BYTES_MAX};
    const size_t head = head_bytes(start);
    struct text rest = {text.bytes, head};
    uint64_t length = 0;

    if (head == 0)
        return text.byte_count < HTTP_HEAD_BYTES_MAX ? SCAN_MORE
                                                     : bad(reason, C10D_REASON_NOT_HTTP);
    if (!take_request_line(take_line(&rest), request) || !take_headers(rest, request, &length))
        return bad(reason, C10D_REASON_NOT_HTTP);
    if (length > C10D_VALUE_BYTES_MAX)
        return bad(reason, C10D_REASON_VALUE_TOO_LONG);
    if (head + length > message_bytes_max)
        return bad(reason, C10D_REASON_MESSAGE_TOO_LONG);
    if (text.byte_count - head < length)
        return SCAN_MORE;
    request->body = (struct text){text.bytes + head, (size_t)length};
    request->byte_count = head + (size_t)length;
    return SCAN_WHOLE;
}

/* -- carrying out ------------------------------------------------------------------------------ */

struct name {
    char bytes[NAME_BYTES];
    size_t byte_count;
};

static struct text name_of(struct name *name, const char *prefix, struct text path)
{
    memcpy(name->bytes, prefix, PREFIX_BYTES);
    memcpy(name->bytes + PREFIX_BYTES, path.bytes, path.byte_count);
    name->byte_count = PREFIX_BYTES + path.byte_count;
    return (struct text){name->bytes, name->byte_count};
}

/* "/SCOPE" of "/SCOPE/KEY". False: the path has another form. */
static bool scope_of(struct text path, struct text *scope)
{
    const char *second;

    if (path.byte_count < 2 || path.byte_count > HTTP_PATH_BYTES_MAX || path.bytes[0] != '/')
        return false;
    second = memchr(path.bytes + 1, '/', path.byte_count - 1);
    if (second == NULL)
        return false;
    *scope = (struct text){path.bytes, (size_t)(second - path.bytes)};
    return memchr(second + 1, '/', path.byte_count - scope->byte_count - 1) == NULL;
}

static bool answer(struct c10d *core, const char *status, struct text value,
                   enum c10d_reason *reason)
{
    char head[96];
    const int bytes = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n",
                               status, value.byte_count);

    return request_reply(core, (struct text){head, (size_t)bytes}, reason) &&
           request_reply(core, value, reason);
}

static bool count(struct c10d *core, struct text scope, int64_t delta, int64_t *left,
                  enum c10d_reason *reason)
{
    struct name name;

    return keys_add(&core->keys, name_of(&name, COUNT_PREFIX, scope), delta, left, reason) ==
           KEYS_DONE;
}

static bool put(struct c10d *core, struct text scope, const struct http_request *request,
                enum c10d_reason *reason)
{
    struct name value, ended;
    const struct text key = name_of(&value, VALUE_PREFIX, request->path);
    const bool was_there = keys_has(&core->keys, key);
    const bool had_ended = keys_delete(&core->keys, name_of(&ended, ENDED_PREFIX, request->path));
    int64_t left;

    return keys_set(&core->keys, key, request->body, reason) == KEYS_DONE &&
           ((was_there && !had_ended) || count(core, scope, 1, &left, reason));
}

/* Whether this is a key of the scope, with either prefix. */
static bool is_in(struct text key, struct text scope)
{
    return key.byte_count > PREFIX_BYTES + scope.byte_count && key.byte_count <= NAME_BYTES &&
           (memcmp(key.bytes, VALUE_PREFIX, PREFIX_BYTES) == 0 ||
            memcmp(key.bytes, ENDED_PREFIX, PREFIX_BYTES) == 0) &&
           memcmp(key.bytes + PREFIX_BYTES, scope.bytes, scope.byte_count) == 0 &&
           key.bytes[PREFIX_BYTES + scope.byte_count] == '/';
}

static void clear(struct c10d *core, struct text scope)
{
    struct table *values = &core->keys.values;
    struct table_node *next;
    struct name name;

    for (struct table_node *node = table_next(values, NULL); node != NULL; node = next) {
        const struct text key = table_key(values, node);

        next = table_next(values, node);
        if (!is_in(key, scope))
            continue;
        memcpy(name.bytes, key.bytes, key.byte_count); /* the node is freed */
        (void)keys_delete(&core->keys, (struct text){name.bytes, key.byte_count});
    }
    (void)keys_delete(&core->keys, name_of(&name, COUNT_PREFIX, scope));
}

static bool end(struct c10d *core, struct text scope, struct text path, enum c10d_reason *reason)
{
    struct name value, ended;
    const struct text mark = name_of(&ended, ENDED_PREFIX, path);
    int64_t left;

    if (!keys_has(&core->keys, name_of(&value, VALUE_PREFIX, path)) || keys_has(&core->keys, mark))
        return true;
    if (keys_set(&core->keys, mark, (struct text){"", 0}, reason) != KEYS_DONE ||
        !count(core, scope, -1, &left, reason))
        return false;
    if (left == 0)
        clear(core, scope);
    return true;
}

bool http_carry_out(struct c10d *core, const struct http_request *request, enum c10d_reason *reason)
{
    const struct text nothing = {"", 0};
    struct text scope, found;
    struct name name;

    if (!scope_of(request->path, &scope))
        return answer(core, "400 Bad Request", nothing, reason);
    switch (request->method) {
    case HTTP_GET:
        if (!keys_get(&core->keys, name_of(&name, VALUE_PREFIX, request->path), &found))
            return answer(core, "404 Not Found", nothing, reason);
        return answer(core, "200 OK", found, reason);
    case HTTP_PUT:
        return put(core, scope, request, reason) && answer(core, "200 OK", nothing, reason);
    case HTTP_DELETE:
        return end(core, scope, request->path, reason) && answer(core, "200 OK", nothing, reason);
    }
    return answer(core, "400 Bad Request", nothing, reason);
}
