#include "worker/metrics/crc32c.h"

#include <string.h>

#define POLYNOMIAL 0x82F63B78u /* reflected */

/* What one byte does to the remainder. */
static uint32_t step(uint32_t crc)
{
    for (int bit = 0; bit < 8; bit++)
        crc = (crc >> 1) ^ ((crc & 1u) != 0 ? POLYNOMIAL : 0u);
    return crc;
}

uint32_t crc32c_table(const void *bytes, size_t byte_count)
{
    const uint8_t *at = bytes;
    uint32_t table[256], crc = UINT32_MAX;

    for (uint32_t i = 0; i < 256; i++)
        table[i] = step(i);
    for (size_t i = 0; i < byte_count; i++)
        crc = (crc >> 8) ^ table[(crc ^ at[i]) & 0xff];
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(const uint8_t *at,
                                                                 size_t byte_count)
{
    uint64_t crc = UINT32_MAX, word;

    for (; byte_count >= sizeof word; at += sizeof word, byte_count -= sizeof word) {
        memcpy(&word, at, sizeof word);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; byte_count > 0; at++, byte_count--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
    return ~(uint32_t)crc;
}

uint32_t crc32c(const void *bytes, size_t byte_count)
{
    return __builtin_cpu_supports("sse4.2") ? by_instruction(bytes, byte_count)
                                            : crc32c_table(bytes, byte_count);
}
#else
uint32_t crc32c(const void *bytes, size_t byte_count)
{
    return crc32c_table(bytes, byte_count);
}
#endif
