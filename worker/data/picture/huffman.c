#include "worker/data/picture/huffman.h"

#include <string.h>

enum { COEFFICIENTS = HUFFMAN_COEFFICIENTS, LENGTH_MAX = 16, SIZE_MAX_DC = 11, SIZE_MAX_AC = 10 };
enum { RUN_NONE = 64, RUN_END = 127 }; /* no such code; the end of the block */
enum { LOOKS = 1 << HUFFMAN_LOOK_BITS, END = 256 };

const uint8_t huffman_natural[COEFFICIENTS] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/* Longer than a block, because zero runs and damaged data may lead past its end. */
const uint8_t huffman_places[HUFFMAN_PLACES] = {
    0,  2,  33, 16, 35, 4,  6,  37, 18, 48, 1,  50, 20, 39, 8,  10, 41, 22, 52, 3,  49, 17, 51, 5,
    54, 24, 43, 12, 14, 45, 26, 56, 7,  53, 19, 32, 34, 21, 55, 9,  58, 28, 47, 30, 60, 11, 57, 23,
    36, 38, 25, 59, 13, 62, 15, 61, 27, 40, 42, 29, 63, 31, 44, 46, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64};

/* -- tables ------------------------------------------------------------------------------------ */

/* The value of `size` extra bits (table F.1): those with a leading 0 are negative. */
static int32_t extend(uint32_t bits, uint32_t size)
{
    return size == 0                         ? 0
           : (bits >> (size - 1) & 1u) == 1u ? (int32_t)bits
                                             : (int32_t)bits - (1 << size) + 1;
}

/* A table entry for a code, in 32 bits. If the extra bits fit into the look-up index too, the entry
 * has the value itself and size is 0.
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

/* Whether the code was looked up with all of its extra bits. */
static bool is_whole(uint32_t code)
{
    return code != 0 && size_of(code) == 0;
}

/* How many coefficients the code stands for; END if it ends the block. */
static uint32_t step_of(uint32_t code)
{
    return run_of(code) == RUN_END ? END : run_of(code) + 1;
}

static uint32_t code_of(bool is_dc, uint8_t symbol, uint32_t length)
{
    if (is_dc)
        return pack(length, symbol, 0, 0);
    if ((symbol & 15u) == 0 && symbol != 0xf0) /* 0xf0 is a run of 16 zeros */
        return pack(length, 0, RUN_END, 0);
    return pack(length, symbol & 15u, symbol >> 4, 0);
}

/* Fills all entries of `look` whose index begins with the code. */
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

/* Two whole codes for one look-up, in 64 bits; 0 if the first is not whole.
 *   0-5 their length in bits, 8-11 run before the first, 12-16 step from the first to the second,
 *   20-29 step after both, 32-47 the second value, 48-63 the first
 * With only one code, or if a code ends the block, the missing value is 0.
 * Few branches, because they would be hard to predict. */
static uint64_t pair_of(const struct huffman *huffman, uint32_t bits)
{
    uint32_t first = huffman->look[bits];
    uint32_t second = huffman->look[bits << length_of(first) & (LOOKS - 1)];
    uint32_t is_end = run_of(first) == RUN_END;
    uint32_t is_two = (is_end ^ 1u) & (uint32_t)is_whole(second) &
                      (uint32_t)(length_of(first) + length_of(second) <= HUFFMAN_LOOK_BITS);
    uint32_t length = length_of(first) + is_two * length_of(second);
    uint32_t step = step_of(first) + is_two * step_of(second);
    uint32_t is_value = is_two & (uint32_t)(run_of(second) != RUN_END);
    uint32_t to_second = 1 + is_value * run_of(second);
    uint32_t run = (is_end ^ 1u) * run_of(first);
    uint64_t pair = length | run << 8 | to_second << 12 | step << 20 |
                    (uint64_t)(is_value * (second >> 16)) << 32 | (uint64_t)(first >> 16) << 48;

    return is_whole(first) ? pair : 0;
}

/* The same if values are not needed, so that extra bits may lie outside of the look-up index: 0-5
 * the length, from 6 on the step. 0 if the first code is longer than the index. */
static uint16_t skip_of(uint32_t first, uint64_t pair)
{
    uint32_t one = (length_of(first) + size_of(first)) | step_of(first) << 6;
    uint32_t two = ((uint32_t)pair & 63u) | (uint32_t)pair >> 20 << 6;

    return (uint16_t)(first == 0 ? 0 : pair == 0 ? one : two);
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
    for (uint32_t bits = 0; !is_dc && bits < LOOKS; bits++) {
        huffman->pairs[bits] = pair_of(huffman, bits);
        huffman->skips[bits] = skip_of(huffman->look[bits], huffman->pairs[bits]);
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

/* Refills to at least 56 bits: enough for two codes with their extra bits. Takes and returns the
 * struct by value, so that it stays in registers. Source: Giesen 2018, "Reading bits in far too
 * many ways", variant 4. */
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

/* Finds a code that is longer than the look-up index; RUN_NONE if there is none. */
static uint32_t find_long(const struct huffman *huffman, bool is_dc, uint64_t bits)
{
    for (uint32_t length = HUFFMAN_LOOK_BITS + 1; length <= LENGTH_MAX; length++) {
        int32_t code = (int32_t)(bits >> (64 - length));

        if (code <= huffman->largest[length])
            return code_of(is_dc, huffman->symbols[(code + huffman->offset[length]) & 255], length);
    }
    return pack(0, 0, RUN_NONE, 0);
}

/* The value of the next `size` extra bits. */
static inline __attribute__((always_inline)) int32_t extra(struct huffman_bits bits, uint32_t size)
{
    uint32_t value = (uint32_t)(bits.bits >> (64 - size));

    /* Subtracts (2^size - 1) if the first bit is 0. */
    return (int32_t)value - (int32_t)((1u << size) - 1) * (int32_t)(~bits.bits >> 63);
}

/* -- blocks ------------------------------------------------------------------------------------ */

/* Reads one code; its coefficient is `k` or a later one. Returns the index of the next coefficient:
 * above COEFFICIENTS if the data is damaged, plus END if the block ends. `block` NULL: skips the
 * values. */
static inline __attribute__((always_inline)) uint32_t read_one(struct huffman_bits *bits,
                                                               const struct huffman *table,
                                                               const uint16_t *quant,
                                                               int16_t *block, uint32_t k)
{
    uint32_t code = table->look[bits->bits >> (64 - HUFFMAN_LOOK_BITS)];
    int32_t value;

    if (code == 0)
        code = find_long(table, false, bits->bits);
    *bits = drop(*bits, length_of(code));
    value = value_of(code);
    if (size_of(code) > 0) {
        value = extra(*bits, size_of(code));
        *bits = drop(*bits, size_of(code));
    }
    if (run_of(code) == RUN_END)
        return k + END;
    k += run_of(code);
    if (block != NULL && k < COEFFICIENTS)
        block[huffman_places[k]] = (int16_t)(value * quant[k]);
    return k + 1;
}

/* Reads the codes of one look-up. Returns the index of the next coefficient; 0: read them one by
 * one, because one look-up does not find them, or because they may belong to the next block. */
static inline __attribute__((always_inline)) uint32_t read_look(struct huffman_bits *bits,
                                                                const struct huffman *table,
                                                                const uint16_t *quant,
                                                                int16_t *block, uint32_t k)
{
    uint32_t look = (uint32_t)(bits->bits >> (64 - HUFFMAN_LOOK_BITS));
    uint32_t length;
    uint32_t next;

    if (block == NULL) {
        uint32_t skip = table->skips[look];

        length = skip & 63u;
        next = k + (skip >> 6);
    } else {
        uint64_t pair = table->pairs[look];
        uint32_t first = k + ((uint32_t)pair >> 8 & 15u);
        uint32_t second = first + ((uint32_t)pair >> 12 & 31u);

        /* Without a value this writes 0: to a coefficient that is not read yet and is 0 already, or
         * to the padding after the block. */
        block[huffman_places[first]] = (int16_t)((int32_t)((int64_t)pair >> 48) * quant[first]);
        block[huffman_places[second]] = (int16_t)(((uint32_t)(pair >> 32) * quant[second]));
        length = (uint32_t)pair & 63u;
        next = k + ((uint32_t)pair >> 20);
    }
    if (__builtin_expect(length == 0 || (next >= COEFFICIENTS && next - END >= COEFFICIENTS), 0))
        return 0;
    *bits = drop(*bits, length);
    return next;
}

/* Reads the coefficients after the first; `block` NULL: skips them. `last` is -1 if they are
 * damaged. */
static inline __attribute__((always_inline)) struct huffman_bits
read_rest(struct huffman_bits bits, const struct huffman *table, const uint16_t *quant,
          int16_t *block, int32_t *last)
{
    uint32_t k = 1;

    while (k < COEFFICIENTS) {
        bits = refill(bits);
        for (int i = 0; i < 2 && k < COEFFICIENTS; i++) {
            uint32_t next = read_look(&bits, table, quant, block, k);

            k = next > 0 ? next : read_one(&bits, table, quant, block, k);
        }
    }
    if (k >= END)
        k -= END;
    else if (k > COEFFICIENTS)
        k = 0; /* no valid code, or a run beyond the block */
    *last = (int32_t)k - 1;
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
