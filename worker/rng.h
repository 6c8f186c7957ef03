/* PyTorch's CPU generator, bit for bit: MT19937 and the draws that initialisers and samplers make.
 * Sources: at::CPUGeneratorImpl, at::native::randperm, at::native::normal_fill (PyTorch 2.x). */
#ifndef WORKER_RNG_H
#define WORKER_RNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rng {
    uint32_t state[624];
    uint32_t next;      /* index of the next word in `state`; 624: twist first */
    bool normal_cached; /* the scalar normal path keeps the second value of a pair */
    double normal_value;
};

/* torch.manual_seed(seed): the low 32 bits seed the twister, as torch does. */
void rng_seed(struct rng *rng, uint64_t seed);
uint32_t rng_u32(struct rng *rng);
/* Tensor.uniform_(lo, hi) for f32: out [n]. */
void rng_uniform_f32(struct rng *rng, float lo, float hi, float *out, size_t n);
/* Tensor.normal_(mean, std) for f32: out [n]; n >= 16 takes the vector path, below it the scalar
 * one. */
void rng_normal_f32(struct rng *rng, float mean, float std, float *out, size_t n);
/* torch.randperm(n): out [n] int64. */
void rng_permute(struct rng *rng, int64_t *out, size_t n);

#endif
