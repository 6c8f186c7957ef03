/* Layers computed in bf16, through oneDNN, where the CPU has instructions for it.
 *
 * In memory a bf16 value is an fp32 value, rounded. Such a layer converts a few images at a time to
 * 16 bits just before its primitive reads them, and converts the output back; both stay in the
 * cache. Sums are fp32, so results equal those of the rounded path up to the order of sums.
 *
 * AMX: channels last, and a 1x1 convolution is a matrix product. AVX512_BF16 of AMD (from Zen 4
 * on): in blocks of channels, where oneDNN is as fast and a conversion has nothing to
 * transpose. There a convolution takes half of fp32's time.
 *
 * Refused, because slower: Intel's AVX512_BF16 without AMX, and oneDNN's bf16 math mode on fp32
 * memory, which does not use AMX. */
#ifndef WORKER_BACKEND_CPU_HALF_H
#define WORKER_BACKEND_CPU_HALF_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/backend/cpu/internal.h"
#include "worker/backend/cpu/product.h"

/* Buffers for the input and output of one chunk in 16 bits; [0] forward, [1] backward. */
struct cpu_half {
    bool on;
    bool keeps_blocks;     /* in blocks of channels, as in memory; else channels last */
    float *in[2], *out[2]; /* bf16 as uint16_t; the type is that of cpu_request */
};

/* The size of a matrix product, see struct cpu_operation. */
struct cpu_matrix {
    int64_t rows, in, out;
};

/* Whether the layer is in bf16, and this machine and the options let it be computed so. */
bool cpu_half_applies(const struct cpu *cpu, const struct cpu_layer *layer);
/* A matrix product in bf16. */
struct cpu_operation cpu_half_operation(const struct cpu_layer *layer,
                                        const struct cpu_matrix *matrix);
/* Requests the buffers for n images of in_size and out_size elements. Errors: STATUS_MEMORY. */
enum status cpu_half_request(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_half *half,
                             uint32_t n, size_t in_size, size_t out_size, struct err *err);
/* n images of a value in bf16, as `half` has them. */
struct cpu_shape cpu_half_shape(const struct cpu *cpu, const struct cpu_half *half,
                                const struct cpu_value *value, uint32_t n);

/* Converts n images between the value's own layout in fp32 (stored) and the one above (packed).
 * Channels last, only every `step`-th row and column is copied; unpack writes 0 to the others. */
void cpu_half_pack(const struct cpu *cpu, const struct cpu_half *half,
                   const struct cpu_value *value, uint32_t n, uint32_t step, const float *stored,
                   float *packed);
void cpu_half_unpack(const struct cpu *cpu, const struct cpu_half *half,
                     const struct cpu_value *value, uint32_t n, uint32_t step, const float *packed,
                     float *stored);

#endif
