/* Convolution and linear layers on values that are stored in bf16 (struct cpu_value): oneDNN's
 * primitives read and write these values directly. Sums are fp32, so results equal those of fp32
 * values that are rounded, up to the order of sums.
 *
 * Copies are made, a few images at a time, in two cases:
 * - oneDNN has no fast bf16 for the shape: the layer is computed in fp32 (is_wide);
 * - a 1x1 convolution with a stride is a matrix product over pixels: it reads every `step`-th row
 *   and column.
 *
 * The order is channels last: as fast as blocks of channels with AMD's AVX512_BF16 (from Zen 4 on),
 * and required for AMX. Refused, because slower: Intel's AVX512_BF16 without AMX, and oneDNN's bf16
 * math mode on fp32 memory, which does not use AMX. */
#ifndef WORKER_BACKEND_CPU_HALF_H
#define WORKER_BACKEND_CPU_HALF_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/backend/cpu/internal.h"

struct cpu_half {
    bool on;      /* input and output are stored in bf16 */
    bool is_wide; /* computed in fp32 */
    uint32_t step;
    float *in[2], *out[2]; /* copies for [0] forward, [1] backward; NULL: none is needed */
};

/* The size of a matrix product, see struct cpu_operation. */
struct cpu_matrix {
    int64_t rows, in, out;
};

/* The type that the layer is computed in. */
enum cpu_type cpu_half_type(const struct cpu_half *half);
/* n images of a value as the primitives see them. */
struct cpu_shape cpu_half_shape(const struct cpu_half *half, const struct cpu_value *value,
                                uint32_t n);
struct cpu_operation cpu_half_matrix(const struct cpu_half *half, const struct cpu_layer *layer,
                                     const struct cpu_matrix *matrix);
/* Requests the copies for n images. Errors: STATUS_MEMORY. */
enum status cpu_half_request(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_half *half,
                             uint32_t n, struct err *err);
/* n images of `value` in the form that the primitive reads: fills and returns `copy`; if that is
 * NULL, returns `memory`. */
const float *cpu_half_read(const struct cpu *cpu, const struct cpu_half *half,
                           const struct cpu_value *value, uint32_t n, const float *memory,
                           float *copy);
/* Call after the primitive wrote n images to `copy`: stores them in the value. NULL: it wrote to
 * `memory`, nothing to do. */
void cpu_half_write(const struct cpu *cpu, const struct cpu_half *half,
                    const struct cpu_value *value, uint32_t n, const float *copy, float *memory);

#endif
