#include "worker/data/picture/huffman.h"

#include <string.h>

enum { COEFFICIENTS = HUFFMAN_COEFFICIENTS, LENGTH_MAX = 16, SIZE_MAX_DC = 11, SIZE_MAX_AC = 10 };
enum { RUN_NONE = 64, RUN_END = 127 }; /* no code; the end of the block */

const uint8_t huffman_natural[COEFFICIENTS] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/* -- tables ------------------------------------------------------------------------------------ */

/* The value of `size` extra bits (table F.1): those with a leading 0 are negative. */
static int32_t extend(uint32_t bits, uint32_t size)
{
    return size == 0                         ? 0
           : (bits >> (size - 1) & 1u) == 1u ? (int32_t)bits
                                             : (int32_t)bits - (1 << size) + 1;
}

/* What a code stands for, in 32 bits. With as many of the extra bits as fit into a look it is looked up
 * whole: then the size is 0.
 *   0-4 its length in bits, 5-8 size: extra bits that are still to be read,
 *   9-15 run: coefficients of 0 before this one, 16-31 its value */
static uint32_t pack(uint32_t length, uint32_t size, uint32_t run, int32_t value)
{
    return length | size << 5 | run << 9 | (uint32_t)value << 16;
}

static uint32_t length_of(uint32_t code)
{
    return code & 31u;
}

static uint32_t size_of(uint32_t code)
{
    return code >> 5 & 15u;
}

static uint32_t run_of(uint32_t code)
{
    return code >> 9 & 127u;
}

static int32_t value_of(uint32_t code)
{
    return (int32_t)code >> 16;
}

static uint32_t code_of(bool is_dc, uint8_t symbol, uint32_t length)
{
    if (is_dc)
        return pack(length, symbol, 0, 0);
    if ((symbol & 15u) == 0 && symbol != 0xf0) /* which is 16 zeros */
        return pack(length, 0, RUN_END, 0);
    return pack(length, symbol & 15u, symbol >> 4, 0);
}

/* All entries of `look` that begin with the code. */
static void fill(struct huffman *huffman, uint32_t code, uint32_t bits)
{
    uint32_t free_bits = HUFFMAN_LOOK_BITS - length_of(code);
    uint32_t size = size_of(code);

    for (uint32_t i = 0; i < 1u << free_bits; i++) {
        uint32_t *entry = &huffman->look[(bits << free_bits) + i];

        *entry = code;
        if (size > 0 && size <= free_bits)
            *entry = pack(length_of(code) + size, 0, run_of(code),
                          extend(i >> (free_bits - size), size));
    }
}

bool huffman_set(struct huffman *huffman, bool is_dc, const uint8_t *counts, const uint8_t *symbols)
{
    uint32_t code = 0;
    uint32_t index = 0;

    memset(huffman->look, 0, sizeof huffman->look);
    memcpy(huffman->symbols, symbols, sizeof huffman->symbols);
    huffman->largest[LENGTH_MAX + 1] = INT32_MAX;
    for (uint32_t length = 1; length <= LENGTH_MAX; length++, code <<= 1) {
        huffman->offset[length] = (int32_t)index - (int32_t)code;
        for (uint32_t i = 0; i < counts[length]; i++, index++, code++) {
            uint8_t symbol = symbols[index & 255u];

            if (index > 255 || code >= 1u << length ||
                (is_dc ? symbol > SIZE_MAX_DC : (symbol & 15u) > SIZE_MAX_AC))
                return false;
            if (length <= HUFFMAN_LOOK_BITS)
                fill(huffman, code_of(is_dc, symbol, length), code);
        }
        huffman->largest[length] = counts[length] > 0 ? (int32_t)code - 1 : -1;
    }
    return true;
}

/* -- bits -------------------------------------------------------------------------------------- */

const uint8_t *huffman_begin(struct huffman_bits *bits, const uint8_t *from, const uint8_t *end,
                             uint8_t *copy)
{
    uint8_t *to = copy;

    while (from < end) {
        const uint8_t *found = memchr(from, 0xff, (size_t)(end - from));
        size_t count = (size_t)((found == NULL ? end : found) - from);

        memcpy(to, from, count);
        to += count;
        from += count;
        if (end - from < 2 || from[1] != 0)
            break;
        *to++ = 0xff;
        from += 2;
    }
    memset(to, 0, HUFFMAN_PAD);
    *bits = (struct huffman_bits){.begin = copy, .at = copy, .end = to};
    return from;
}

static int64_t left(const struct huffman_bits *bits)
{
    return (bits->end - bits->at) * 8 + (int64_t)bits->count;
}

bool huffman_is_at_end(const struct huffman_bits *bits)
{
    return left(bits) >= 0 && left(bits) < 8;
}

/* At least 56 bits: enough for two codes with their extra bits. By value, so that all of it stays in
 * registers. Source: Giesen 2018, "Reading bits in far too many ways", variant 4. */
static inline __attribute__((always_inline)) struct huffman_bits refill(struct huffman_bits bits)
{
    uint64_t next;

    memcpy(&next, bits.at, sizeof next);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    next = __builtin_bswap64(next);
#endif
    bits.bits |= next >> bits.count;
    bits.at += (63 - bits.count) >> 3;
    bits.count |= 56;
    return bits;
}

static inline __attribute__((always_inline)) struct huffman_bits drop(struct huffman_bits bits,
                                                                      uint32_t count)
{
    bits.bits <<= count;
    bits.count -= count;
    return bits;
}

/* A code that is longer than a look; RUN_NONE where there is none. */
static uint32_t find_long(const struct huffman *huffman, bool is_dc, uint64_t bits)
{
    for (uint32_t length = HUFFMAN_LOOK_BITS + 1; length <= LENGTH_MAX; length++) {
        int32_t code = (int32_t)(bits >> (64 - length));

        if (code <= huffman->largest[length])
            return code_of(is_dc, huffman->symbols[(code + huffman->offset[length]) & 255], length);
    }
    return pack(0, 0, RUN_NONE, 0);
}

/* The value of the extra bits that are next. */
static inline __attribute__((always_inline)) int32_t extra(struct huffman_bits bits, uint32_t size)
{
    uint32_t value = (uint32_t)(bits.bits >> (64 - size));

    /* Less (2^size - 1) where the first bit is 0. */
    return (int32_t)value - (int32_t)((1u << size) - 1) * (int32_t)(~bits.bits >> 63);
}

/* -- blocks ------------------------------------------------------------------------------------ */

/* The coefficients behind the first; `block` NULL: passed over. `last` is -1 where they are damaged. */
static inline __attribute__((always_inline)) struct huffman_bits
read_rest(struct huffman_bits bits, const struct huffman *table, const uint16_t *quant,
          int16_t *block, int32_t *last)
{
    uint32_t k = 1;
    int32_t found = 0;

    for (uint32_t step = 0; k < COEFFICIENTS; step++) {
        uint32_t code;
        int32_t value;

        if (step % 2 == 0)
            bits = refill(bits);
        code = table->look[bits.bits >> (64 - HUFFMAN_LOOK_BITS)];
        if (__builtin_expect(code == 0, 0))
            code = find_long(table, false, bits.bits);
        bits = drop(bits, length_of(code));
        value = value_of(code);
        k += run_of(code);
        if (__builtin_expect(size_of(code) > 0, 0)) {
            value = extra(bits, size_of(code));
            bits = drop(bits, size_of(code));
        }
        if (k >= COEFFICIENTS) {
            if (k <= RUN_END) /* no code, or more zeros than a block has */
                found = -1;
            break;
        }
        if (block != NULL)
            block[huffman_natural[k]] = (int16_t)(value * quant[k]);
        found = (int32_t)k++;
    }
    *last = found;
    return bits;
}

/* The first coefficient is coded as its difference from the block before. */
static inline struct huffman_bits read_first(struct huffman_bits bits, const struct huffman *table,
                                             int32_t *dc, bool *is_sound)
{
    uint32_t code;

    bits = refill(bits);
    code = table->look[bits.bits >> (64 - HUFFMAN_LOOK_BITS)];
    if (code == 0)
        code = find_long(table, true, bits.bits);
    bits = drop(bits, length_of(code));
    *dc += value_of(code);
    if (size_of(code) > 0) {
        *dc += extra(bits, size_of(code));
        bits = drop(bits, size_of(code));
    }
    *is_sound = run_of(code) == 0 && *dc >= INT16_MIN && *dc <= INT16_MAX;
    return bits;
}

bool huffman_block(struct huffman_bits *bits, const struct huffman *dc_table,
                   const struct huffman *ac_table, int32_t *dc, const uint16_t *quant,
                   int16_t *block, int32_t *last)
{
    bool is_sound;

    *last = 0;
    *bits = read_first(*bits, dc_table, dc, &is_sound);
    if (!is_sound)
        return false;
    if (block == NULL) {
        *bits = read_rest(*bits, ac_table, quant, NULL, last);
    } else {
        block[0] = (int16_t)(*dc * quant[0]);
        *bits = read_rest(*bits, ac_table, quant, block, last);
    }
    return *last >= 0 && left(bits) >= 0;
}
