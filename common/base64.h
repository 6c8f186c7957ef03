/* Base64 (RFC 4648, section 4), canonical only: padding is required, the unused last bits are zero.
 * Pure. */
#ifndef COMMON_BASE64_H
#define COMMON_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length of base64 text for `byte_count` bytes. */
#define BASE64_CHARS(byte_count) (((size_t)(byte_count) + 2) / 3 * 4)

/* An upper bound for the bytes of base64 text; exact if the text is well-formed. */
size_t base64_bytes_max(size_t char_count);
/* Writes BASE64_CHARS(byte_count) characters, no NUL. */
void base64_encode(const uint8_t *bytes, size_t byte_count, char *chars);
/* `bytes` holds base64_bytes_max(char_count). False: not canonical base64. */
bool base64_decode(const char *chars, size_t char_count, uint8_t *bytes, size_t *byte_count);

#endif
