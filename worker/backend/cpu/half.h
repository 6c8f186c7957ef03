/* Layers computed in bf16 by the CPU's matrix unit (AMX), through oneDNN.
 *
 * In memory a bf16 value is an fp32 value, rounded. Such a layer converts a few images at a time to
 * 16 bits just before its primitive reads them, and converts the output back; both stay in the
 * cache. The unit sums in fp32, so results equal those of the rounded path up to the order of sums.
 *
 * Refused, because slower: bf16 without a matrix unit (avx512_bf16), and oneDNN's bf16 math mode on
 * fp32 memory, which does not use the unit. */
#ifndef WORKER_BACKEND_CPU_HALF_H
#define WORKER_BACKEND_CPU_HALF_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/backend/cpu/internal.h"
#include "worker/backend/cpu/product.h"

/* Buffers for the input and output of one chunk in 16 bits; [0] forward, [1] backward. */
struct cpu_half {
    bool on;
    float *in[2], *out[2]; /* bf16 as uint16_t; the type is that of cpu_request */
};

/* The size of a matrix product, see struct cpu_operation. */
struct cpu_matrix {
    int64_t rows, in, out;
};

/* Whether the layer is in bf16 and this machine and the options allow AMX. */
bool cpu_half_applies(const struct cpu *cpu, const struct cpu_layer *layer);
/* A matrix product in bf16. */
struct cpu_operation cpu_half_operation(const struct cpu_layer *layer,
                                        const struct cpu_matrix *matrix);
/* Requests the buffers for n images of in_size and out_size elements. Errors: STATUS_MEMORY. */
enum status cpu_half_request(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_half *half,
                             uint32_t n, size_t in_size, size_t out_size, struct err *err);
/* n images of a value in bf16, [n][height][width][channels]. */
struct cpu_shape cpu_half_shape(const struct cpu_value *value, uint32_t n);

/* Converts n images between the value's own layout in fp32 (stored) and the one above (half). Only
 * every `step`-th row and column is copied; unpack writes 0 to the others. */
void cpu_half_pack(const struct cpu *cpu, const struct cpu_value *value, uint32_t n, uint32_t step,
                   const float *stored, float *half);
void cpu_half_unpack(const struct cpu *cpu, const struct cpu_value *value, uint32_t n,
                     uint32_t step, const float *half, float *stored);

#endif
