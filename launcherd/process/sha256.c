#include "launcherd/process/sha256.h"

#include <assert.h>
#include <string.h>

enum { BLOCK = 64, LENGTH_BYTES = 8 };

/* FIPS 180-4, section 4.2.2 */
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, uint32_t by)
{
    return x >> by | x << (32 - by);
}

/* Section 6.2.2, step 1. */
static void schedule(const uint8_t block[BLOCK], uint32_t w[64])
{
    for (uint32_t t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (uint32_t t = 16; t < 64; t++) {
        const uint32_t a = w[t - 15], b = w[t - 2];

        w[t] = (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10) + w[t - 7] +
               (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[t - 16];
    }
}

/* Steps 2 to 4; v: the working variables a to h. */
static void take_block(uint32_t hash[8], const uint8_t block[BLOCK])
{
    uint32_t w[64], v[8];

    schedule(block, w);
    memcpy(v, hash, sizeof v);
    for (uint32_t t = 0; t < 64; t++) {
        const uint32_t sum1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
        const uint32_t choose = (v[4] & v[5]) ^ (~v[4] & v[6]);
        const uint32_t t1 = v[7] + sum1 + choose + constants[t] + w[t];
        const uint32_t sum0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
        const uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);

        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + sum0 + majority;
    }
    for (uint32_t i = 0; i < 8; i++)
        hash[i] += v[i];
}

void sha256(const void *bytes, size_t byte_count, uint8_t out[SHA256_BYTES])
{
    uint32_t hash[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t padded[SHA256_TEXT_BYTES_MAX + 2 * BLOCK] = {0}; /* section 5.1.1 */
    size_t end = (byte_count + 1 + LENGTH_BYTES + BLOCK - 1) / BLOCK * BLOCK;
    const uint64_t bit_count = (uint64_t)byte_count * 8;

    assert(byte_count <= SHA256_TEXT_BYTES_MAX);
    if (byte_count > 0)
        memcpy(padded, bytes, byte_count);
    padded[byte_count] = 0x80;
    for (uint32_t i = 0; i < LENGTH_BYTES; i++)
        padded[end - 1 - i] = (uint8_t)(bit_count >> 8 * i);
    for (size_t at = 0; at < end; at += BLOCK)
        take_block(hash, padded + at);
    for (uint32_t i = 0; i < SHA256_BYTES; i++)
        out[i] = (uint8_t)(hash[i / 4] >> (24 - 8 * (i % 4)));
}
