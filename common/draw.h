/* Random numbers for drawn images: an independent stream for each (seed, index). Not those of
 * PyTorch, which are in rng.h. Source: Steele, Lea and Flood 2014, SplitMix64. */
#ifndef COMMON_DRAW_H
#define COMMON_DRAW_H

#include <stdint.h>

struct draw {
    uint64_t state;
};

static inline uint64_t draw_u64(struct draw *draw)
{
    uint64_t z = draw->state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

static inline struct draw draw_begin(uint64_t seed, uint64_t index)
{
    struct draw seeded = {seed};
    struct draw draw = {draw_u64(&seeded) ^ (index * 0xd1342543de82ef95ULL)};
    (void)draw_u64(&draw);
    draw.state = draw_u64(&draw);
    return draw;
}

/* Uniform in [0, n). */
static inline uint32_t draw_below(struct draw *draw, uint32_t n)
{
    return (uint32_t)(((draw_u64(draw) >> 32) * n) >> 32);
}

/* Uniform in [lo, hi). */
static inline float draw_between(struct draw *draw, float lo, float hi)
{
    return lo + (hi - lo) * ((float)(draw_u64(draw) >> 40) * 0x1p-24F);
}

/* Uniform in [0, 1). */
static inline double draw_unit(struct draw *draw)
{
    return (double)(draw_u64(draw) >> 11) * 0x1p-53;
}

/* Approximately normal with mean 0 and variance 1, between -3.5 and 3.5: the scaled sum of four
 * 16-bit uniform numbers. */
static inline float draw_bell(struct draw *draw)
{
    uint64_t bits = draw_u64(draw);
    uint32_t sum = (uint32_t)(bits & 0xffff) + (uint32_t)(bits >> 16 & 0xffff) +
                   (uint32_t)(bits >> 32 & 0xffff) + (uint32_t)(bits >> 48);
    return ((float)sum * 0x1p-16F - 2.0F) * 1.7320508F;
}

#endif
