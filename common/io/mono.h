/* CLOCK_MONOTONIC in microseconds. Only differences of its readings mean anything. */
#ifndef COMMON_IO_MONO_H
#define COMMON_IO_MONO_H

#include <stdint.h>
#include <time.h>

static inline uint64_t mono_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

#endif
