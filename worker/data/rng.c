/* PyTorch's CPU generator. Every draw uses the same numbers of the generator in the same order as
 * torch. Normal draws of 16 and more values differ from torch's AVX2 code in the last bits, since
 * torch's code has its own logarithm and sine. */
#include "worker/data/rng.h"

#include <assert.h>
#include <math.h>

enum { MT_COUNT = 624, MT_SHIFT = 397, NORMAL_BLOCK = 16, NORMAL_HALF = NORMAL_BLOCK / 2 };

static const double TWO_PI = 6.283185307179586476925286766559;

void rng_seed(struct rng *rng, uint64_t seed)
{
    /* Matsumoto and Nishimura, mt19937ar.c, init_genrand */
    rng->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < MT_COUNT; i++) {
        uint32_t before = rng->state[i - 1];
        rng->state[i] = 1812433253U * (before ^ (before >> 30)) + i;
    }
    rng->next = MT_COUNT;
    rng->normal_cached = false;
    rng->normal_value = 0;
}

static uint32_t mix(uint32_t high, uint32_t low)
{
    uint32_t mixed = (high & 0x80000000U) | (low & 0x7fffffffU);
    return (mixed >> 1) ^ ((low & 1U) ? 0x9908b0dfU : 0U);
}

static void twist(struct rng *rng)
{
    uint32_t *s = rng->state;

    for (uint32_t i = 0; i < MT_COUNT - MT_SHIFT; i++)
        s[i] = s[i + MT_SHIFT] ^ mix(s[i], s[i + 1]);
    for (uint32_t i = MT_COUNT - MT_SHIFT; i < MT_COUNT - 1; i++)
        s[i] = s[i + MT_SHIFT - MT_COUNT] ^ mix(s[i], s[i + 1]);
    s[MT_COUNT - 1] = s[MT_SHIFT - 1] ^ mix(s[MT_COUNT - 1], s[0]);
    rng->next = 0;
}

uint32_t rng_u32(struct rng *rng)
{
    uint32_t y;

    assert(rng->next <= MT_COUNT);
    if (rng->next == MT_COUNT)
        twist(rng);
    y = rng->state[rng->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    return y ^ (y >> 18);
}

void rng_skip(struct rng *rng, size_t n)
{
    while (n > 0) {
        size_t more;

        if (rng->next == MT_COUNT)
            twist(rng);
        more = n < MT_COUNT - rng->next ? n : MT_COUNT - rng->next;
        rng->next += (uint32_t)more;
        n -= more;
    }
}

/* at::CPUGeneratorImpl::random64: the first number is the upper half. */
static uint64_t random64(struct rng *rng)
{
    uint64_t high = rng_u32(rng);
    return (high << 32) | rng_u32(rng);
}

static float uniform_f32(struct rng *rng)
{
    return (float)(rng_u32(rng) & 0xffffffU) * 0x1p-24F;
}

static double uniform_f64(struct rng *rng)
{
    return (double)(random64(rng) & 0x1fffffffffffffULL) * 0x1p-53;
}

void rng_uniform_f32(struct rng *rng, float lo, float hi, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = fmaf(uniform_f32(rng), hi - lo, lo); /* torch's kernel is built with FMA */
}

/* at::normal_distribution<double>: Box-Muller on two 53-bit uniform numbers; the sine value is kept
 * for the next call. */
static double normal_scalar(struct rng *rng)
{
    double u1, u2, radius;

    if (rng->normal_cached) {
        rng->normal_cached = false;
        return rng->normal_value;
    }
    u1 = uniform_f64(rng);
    u2 = uniform_f64(rng);
    radius = sqrt(-2.0 * log1p(-u2));
    rng->normal_value = radius * sin(TWO_PI * u1);
    rng->normal_cached = true;
    return radius * cos(TWO_PI * u1);
}

/* at::native::normal_fill_16: 16 uniform values become normal ones, in place. */
static void normal_block(float *block, float mean, float std)
{
    for (int i = 0; i < NORMAL_HALF; i++) {
        float radius = sqrtf(-2.0F * logf(1.0F - block[i]));
        float theta = (float)TWO_PI * block[i + NORMAL_HALF];
        block[i] = radius * cosf(theta) * std + mean;
        block[i + NORMAL_HALF] = radius * sinf(theta) * std + mean;
    }
}

static void normal_vector(struct rng *rng, float mean, float std, float *out, size_t n)
{
    assert(n >= NORMAL_BLOCK);
    for (size_t i = 0; i < n; i++)
        out[i] = uniform_f32(rng);
    for (size_t i = 0; i + NORMAL_BLOCK <= n; i += NORMAL_BLOCK)
        normal_block(out + i, mean, std);
    if (n % NORMAL_BLOCK == 0)
        return;
    /* torch draws the last 16 values again; they overlap the block before */
    out += n - NORMAL_BLOCK;
    for (size_t i = 0; i < NORMAL_BLOCK; i++)
        out[i] = uniform_f32(rng);
    normal_block(out, mean, std);
}

void rng_normal_f32(struct rng *rng, float mean, float std, float *out, size_t n)
{
    if (n >= NORMAL_BLOCK) {
        normal_vector(rng, mean, std, out, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(normal_scalar(rng) * (double)std + (double)mean);
}

void rng_permute(struct rng *rng, int64_t *out, size_t n)
{
    assert(n < UINT32_MAX / 20); /* above this torch draws 64-bit numbers */

    for (size_t i = 0; i < n; i++)
        out[i] = (int64_t)i;
    for (size_t i = 0; i + 1 < n; i++) {
        size_t other = i + rng_u32(rng) % (uint32_t)(n - i);
        int64_t kept = out[i];

        out[i] = out[other];
        out[other] = kept;
    }
}
