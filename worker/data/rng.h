/* PyTorch's CPU generator (MT19937) and the draws that initialisers and samplers make, bit for bit.
 * Sources: at::CPUGeneratorImpl, at::native::randperm, at::native::normal_fill (PyTorch 2.x). */
#ifndef WORKER_DATA_RNG_H
#define WORKER_DATA_RNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rng {
    uint32_t state[624];
    uint32_t next;      /* index of the next number in `state`; 624: twist first */
    bool normal_cached; /* normal_value is the second value of a Box-Muller pair */
    double normal_value;
};

/* torch.manual_seed(seed): as in torch, the lower 32 bits are the seed. */
void rng_seed(struct rng *rng, uint64_t seed);
/* The next 32 random bits. */
uint32_t rng_u32(struct rng *rng);
/* As n calls of rng_u32, or rng_uniform_f32 of n values, without the values. */
void rng_skip(struct rng *rng, size_t n);
/* Tensor.uniform_(lo, hi) for f32: out [n]. */
void rng_uniform_f32(struct rng *rng, float lo, float hi, float *out, size_t n);
/* Tensor.normal_(mean, std) for f32: out [n]. As in torch, n >= 16 uses the vector algorithm and n
 * < 16 the scalar one. */
void rng_normal_f32(struct rng *rng, float mean, float std, float *out, size_t n);
/* torch.randperm(n): out [n] int64. */
void rng_permute(struct rng *rng, int64_t *out, size_t n);

#endif
