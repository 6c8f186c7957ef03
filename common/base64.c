#include "common/base64.h"

#include <assert.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t base64_bytes_max(size_t char_count)
{
    return char_count / 4 * 3;
}

void base64_encode(const uint8_t *bytes, size_t byte_count, char *chars)
{
    for (size_t i = 0; i < byte_count; i += 3, chars += 4) {
        size_t left = byte_count - i;
        uint32_t group = (uint32_t)bytes[i] << 16;

        if (left > 1)
            group |= (uint32_t)bytes[i + 1] << 8;
        if (left > 2)
            group |= bytes[i + 2];
        chars[0] = alphabet[group >> 18 & 63];
        chars[1] = alphabet[group >> 12 & 63];
        chars[2] = left > 1 ? alphabet[group >> 6 & 63] : '=';
        chars[3] = left > 2 ? alphabet[group & 63] : '=';
    }
}

/* -1: not a character of base64 */
static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+')
        return 62;
    return c == '/' ? 63 : -1;
}

/* Decodes one group of four; `kept`: characters before the padding, 2 to 4. */
static bool decode_group(const char *chars, size_t kept, uint8_t *bytes)
{
    uint32_t group = 0;

    assert(kept >= 2 && kept <= 4);
    for (size_t i = 0; i < 4; i++) {
        int digit = i < kept ? digit_of(chars[i]) : 0;

        if (digit < 0)
            return false;
        group = group << 6 | (uint32_t)digit;
    }
    if ((kept == 2 && (group & 0xffff) != 0) || (kept == 3 && (group & 0xff) != 0))
        return false;
    for (size_t i = 0; i + 1 < kept; i++)
        bytes[i] = (uint8_t)(group >> (16 - 8 * i) & 0xff);
    return true;
}

bool base64_decode(const char *chars, size_t char_count, uint8_t *bytes, size_t *byte_count)
{
    size_t done = 0;

    if (char_count % 4 != 0)
        return false;
    for (size_t i = 0; i < char_count; i += 4) {
        size_t kept = 4;

        if (i + 4 == char_count && chars[i + 3] == '=')
            kept = chars[i + 2] == '=' ? 2 : 3;
        if (!decode_group(chars + i, kept, bytes + done))
            return false;
        done += kept - 1;
    }
    *byte_count = done;
    return true;
}
