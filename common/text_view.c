#include "common/text_view.h"

#include <ctype.h>
#include <string.h>

#include "common/utf8.h"

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

struct text text_of(const char *string)
{
    return (struct text){string, strlen(string)};
}

struct text text_trim(struct text text)
{
    while (text.count > 0 && is_blank(text.bytes[text.count - 1]))
        text.count--;
    while (text.count > 0 && is_blank(text.bytes[0])) {
        text.bytes++;
        text.count--;
    }
    return text;
}

struct text text_line(struct text text, size_t at, size_t *next)
{
    const char *from = text.bytes + at, *end = memchr(from, '\n', text.count - at);
    const size_t bytes = end != NULL ? (size_t)(end - from) : text.count - at;

    *next = at + bytes + (end != NULL);
    return (struct text){from, bytes};
}

struct text text_from(struct text text, size_t count)
{
    count = count < text.count ? count : text.count;
    return (struct text){text.bytes + count, text.count - count};
}

bool text_starts(struct text text, const char *start)
{
    const size_t bytes = strlen(start);

    return text.count >= bytes && memcmp(text.bytes, start, bytes) == 0;
}

bool text_ends(struct text text, const char *end)
{
    const size_t bytes = strlen(end);

    return text.count >= bytes && memcmp(text.bytes + text.count - bytes, end, bytes) == 0;
}

bool text_is(struct text text, const char *string)
{
    return text.count == strlen(string) && text_starts(text, string);
}

size_t text_find(struct text text, const char *words)
{
    const char *found = memmem(text.bytes, text.count, words, strlen(words));

    return found != NULL ? (size_t)(found - text.bytes) : text.count;
}

bool text_has(struct text text, const char *words)
{
    return text_find(text, words) < text.count;
}

struct text text_without_ranks(struct text line)
{
    for (;;) {
        size_t at = 5;

        if (!text_starts(line, "[rank"))
            return line;
        while (at < line.count && isdigit((unsigned char)line.bytes[at]))
            at++;
        if (at == 5 || at + 1 >= line.count || memcmp(line.bytes + at, "]:", 2) != 0)
            return line;
        at += 2;
        line = text_from(line, at + (at < line.count && line.bytes[at] == ' '));
    }
}

void text_append(char *out, size_t out_bytes, struct text text)
{
    const size_t used = strlen(out);

    (void)utf8_printable_lines(text.bytes, text.count, out + used, out_bytes - used);
}
