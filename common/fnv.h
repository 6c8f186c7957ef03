/* 64-bit FNV-1a (draft-eastlake-fnv, section 2): tells texts apart. It finds accidents, not attacks. */
#ifndef COMMON_FNV_H
#define COMMON_FNV_H

#include <stddef.h>
#include <stdint.h>

#define FNV_START UINT64_C(14695981039346656037)

/* The hash of what gave `hash` (FNV_START: of nothing) and these bytes. */
static inline uint64_t fnv_add(uint64_t hash, const void *bytes, size_t byte_count)
{
    const uint8_t *next = (const uint8_t *)bytes;

    for (size_t i = 0; i < byte_count; i++)
        hash = (hash ^ next[i]) * UINT64_C(1099511628211);
    return hash;
}

#endif
