/* Views of text, not terminated. Pure. */
#ifndef COMMON_TEXT_VIEW_H
#define COMMON_TEXT_VIEW_H

#include <stdbool.h>
#include <stddef.h>

struct text {
    const char *bytes;
    size_t count;
};

struct text text_of(const char *string);
/* Without blanks, tabs and line ends at both ends. */
struct text text_trim(struct text text);
/* The line at offset `at`, without its line feed; `*next` gets the offset of the next line. */
struct text text_line(struct text text, size_t at, size_t *next);
/* What follows the first `count` bytes. */
struct text text_from(struct text text, size_t count);
bool text_starts(struct text text, const char *start);
bool text_ends(struct text text, const char *end);
bool text_is(struct text text, const char *string);
/* The offset of the first `words` in the text; text.count: it has none. */
size_t text_find(struct text text, const char *words);
bool text_has(struct text text, const char *words);
/* Without PyTorch's prefix "[rank0]: ", as often as it stands there. */
struct text text_without_ranks(struct text text);
/* Appends what fits to the string `out`. Line feeds and tabs stay; '?' replaces whatever else is not printable. */
void text_append(char *out, size_t out_bytes, struct text text);

#endif
