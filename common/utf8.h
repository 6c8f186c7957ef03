/* UTF-8, strictly (RFC 3629, section 4): no overlong forms, no surrogates, nothing over U+10FFFF.
 * Pure. */
#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* Whether a character may begin with `byte`: in valid text all other bytes continue one. */
static inline bool utf8_is_start(char byte)
{
    return ((unsigned char)byte & 0xc0) != 0x80;
}
/* The length (1 to 4) of the character at the start of `text`; 0: none, or invalid. */
size_t utf8_next(const char *text, size_t byte_count);
bool utf8_is_valid(const char *text, size_t byte_count);
/* Whether `text` begins with a control character: C0, DEL, or C1 (U+0080 to U+009F). */
bool utf8_is_control(const char *text, size_t byte_count);
/* Copies text so that it fits in one line. Control characters and invalid bytes become '?'. Text
 * that does not fit in `out_bytes` (at least 8, with the NUL) is cut after a character and ends in
 * "...". `out` is always UTF-8 without control characters. */
void utf8_printable(const char *text, size_t byte_count, char *out, size_t out_bytes);
/* The same for a printf format. At most 2 * REASON_BYTES_MAX - 1 bytes of the formatted text are
 * used. */
void utf8_printable_format(char *out, size_t out_bytes, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
/* Copies lines: line feeds and tabs stay, other control characters and invalid bytes become '?'.
 * The end of text that does not fit is cut after a character. Returns the length of `out` without
 * the NUL. */
size_t utf8_printable_lines(const char *text, size_t byte_count, char *out, size_t out_bytes);

#endif
