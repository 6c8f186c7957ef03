/* A hash over the description of a data set, to notice when two sets were mixed up. Not a
 * cryptographic hash. The same on every machine. */
#ifndef WORKER_DATA_HASH_H
#define WORKER_DATA_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_BEGIN 0x243f6a8885a308d3ULL

static inline uint64_t hash_u64(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9fb21c651e98df25ULL;
    return hash ^ hash >> 29;
}

static inline uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t byte_count)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < byte_count; i += sizeof(uint64_t)) {
        const size_t left = byte_count - i;
        uint64_t word = 0;

        memcpy(&word, at + i, left < sizeof word ? left : sizeof word);
        hash = hash_u64(hash, word);
    }
    return hash_u64(hash, byte_count);
}

#endif
