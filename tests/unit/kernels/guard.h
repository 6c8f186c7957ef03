/* Random values, and guards around the buffers of an optimizer's test. */
#ifndef TESTS_UNIT_KERNELS_GUARD_H
#define TESTS_UNIT_KERNELS_GUARD_H

#include <stddef.h>
#include <stdint.h>

#include "tests/lib/test.h"

/* As a float, 0x7f7f7f7f is 3.4e38: a guard that is added to a sum shows in the result. */
#define GUARD_BYTE 0x7f

static uint32_t random_state;

/* Uniform in [-1, 1). */
static inline float draw(void)
{
    random_state = random_state * 1664525U + 1013904223U;
    return (float)(random_state >> 8) * 0x1p-23F - 1.0F;
}

static inline void check_guard(const void *bytes, size_t byte_count)
{
    const uint8_t *byte = bytes;

    for (size_t i = 0; i < byte_count; i++)
        CHECK_EQ(byte[i], GUARD_BYTE);
}

#endif
