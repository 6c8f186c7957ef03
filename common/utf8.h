/* UTF-8, strictly (RFC 3629, section 4): no overlong forms, no surrogates, nothing over U+10FFFF.
 * Pure. */
#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes (1 to 4) of the character at the start of `text`, 0 where there is none or a broken one. */
size_t utf8_next(const char *text, size_t byte_count);
bool utf8_is_valid(const char *text, size_t byte_count);
/* A control character stands at the start: C0, DEL, or C1 (U+0080 to U+009F). */
bool utf8_is_control(const char *text, size_t byte_count);
/* A copy fit for a line: control characters and broken bytes become '?'; what does not fit in
 * `out_bytes` (at least 8, with the NUL) is cut at a character and ends in "...". `out` is always
 * UTF-8 without control characters. */
void utf8_printable(const char *text, size_t byte_count, char *out, size_t out_bytes);

#endif
