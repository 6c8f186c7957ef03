/* The Huffman coded blocks of a baseline JPEG: ITU-T T.81, annex F.2.2. */
#ifndef WORKER_DATA_PICTURE_HUFFMAN_H
#define WORKER_DATA_PICTURE_HUFFMAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HUFFMAN_COEFFICIENTS = 64,
    HUFFMAN_PLACES = 96,    /* with room for runs of two codes beyond the block */
    HUFFMAN_BLOCK = 80,     /* coefficients, and padding that is written too */
    HUFFMAN_LOOK_BITS = 10, /* bits of the index of the look-up tables */
};

/* Position in a block of [row][column] of each coefficient; coefficients are coded in zigzag
 * order. */
extern const uint8_t huffman_natural[HUFFMAN_COEFFICIENTS];
/* Where huffman_block() stores each coefficient: in pairs of rows, as the IDCT multiplies them (0
 * and 4, 2 and 6, 7 and 1, 3 and 5): [pair][column][2]. Coefficients beyond the block go to its
 * end. */
extern const uint8_t huffman_places[HUFFMAN_PLACES];

struct huffman {
    /* Codes by the next bits, packed (huffman.c); 0: a longer code. */
    uint32_t look[1 << HUFFMAN_LOOK_BITS];
    /* Several codes at once, if they fit; 0: read them one by one. Not for the first coefficient of
     * a block. */
    uint64_t pairs[1 << HUFFMAN_LOOK_BITS];
    uint16_t skips[1 << HUFFMAN_LOOK_BITS];
    int32_t largest[18]; /* largest code of each length; -1: none. [17] ends the search */
    int32_t offset[17];  /* from a code to its index in `symbols` */
    uint8_t symbols[256];
};

/* From a table in a file: counts [17] of codes of each length, [0] is not used; symbols [256].
 * False if this is not a valid table. */
bool huffman_set(struct huffman *huffman, bool is_dc, const uint8_t *counts,
                 const uint8_t *symbols);

enum { HUFFMAN_PAD = 1024 }; /* bytes after the data, more than a block can read */

/* Bits of the coded data between two markers. */
struct huffman_bits {
    const uint8_t *begin, *at, *end;
    uint64_t bits;  /* the next bits, from the top */
    uint32_t count; /* how many of them are valid */
};

/* Copies the coded data from `from` to the next marker into `copy`, 0xff00 becoming 0xff; `copy`
 * has room for end - from + HUFFMAN_PAD bytes. Returns where the marker is, or `end`. */
const uint8_t *huffman_begin(struct huffman_bits *bits, const uint8_t *from, const uint8_t *end,
                             uint8_t *copy);
/* Whether all bits were read, except those that fill up the last byte. */
bool huffman_is_at_end(const struct huffman_bits *bits);

/* Reads a block. False if the data is damaged or ends too early.
 *   dc: of the block before, updated
 *   quant: [HUFFMAN_PLACES] in zigzag order
 *   block: [HUFFMAN_BLOCK] zeros, written at huffman_places, multiplied by quant; NULL: skips the
 *       block
 *   last: index in zigzag order of the last coded coefficient; 0: only the first */
bool huffman_block(struct huffman_bits *bits, const struct huffman *dc_table,
                   const struct huffman *ac_table, int32_t *dc, const uint16_t *quant,
                   int16_t *block, int32_t *last);

#endif
