/* Layers that are computed in bf16 by the machine's matrix unit (AMX), through oneDNN.
 *
 * Everywhere else a bf16 value is fp32 in memory, rounded. Such a layer narrows a few images at a
 * time to 16 bits just before its primitive reads them and widens what it made, both in the cache;
 * sums are fp32 inside the unit, so results are those of the rounded path up to the order of sums.
 * The alternatives were slower: 16 bits without a matrix unit (avx512_bf16 alone), and oneDNN's own
 * bf16 mode over fp32 memory, which does not reach the unit. */
#ifndef WORKER_BACKEND_CPU_CPU_LOW_H
#define WORKER_BACKEND_CPU_CPU_LOW_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/backend/cpu/cpu.h"
#include "worker/backend/cpu/cpu_product.h"

/* One chunk's input and output in 16 bits, of the forward and of the backward pass. */
struct cpu_low {
    bool on;
    float *in[2], *out[2]; /* really uint16_t: cpu_want has one kind of pointer */
};

/* [rows][in] times the weights, [out][in], transposed; bias fp32. */
struct cpu_matrix {
    int64_t rows, in, out;
    bool has_bias;
};

/* Whether this layer's type, this machine and the options would have it. */
bool cpu_low_wanted(const struct cpu *cpu, const struct cpu_layer *layer);
/* Keeps the descriptor where the matrix unit will run it, or where the layout of the weights is
 * given: then the unit was there for another number of images. Else destroys it and returns
 * dnnl_unimplemented. */
dnnl_status_t cpu_low_check(const dnnl_memory_desc_t *weights, dnnl_primitive_desc_t *pd);
/* A cpu_describe of a matrix product in bf16. */
dnnl_status_t cpu_low_describe(const struct cpu *cpu, const struct cpu_matrix *matrix,
                               enum cpu_direction direction, const dnnl_memory_desc_t *weights,
                               const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd);
/* Room for n images of so many elements each. Errors: STATUS_MEMORY. */
enum status cpu_low_want(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_low *low,
                         uint32_t n, size_t in_size, size_t out_size, struct err *err);
/* n images of a value, [n][height][width][channels] in bf16. */
dnnl_status_t cpu_low_md(const struct cpu_value *value, uint32_t n, dnnl_memory_desc_t *md);

/* Between n images of a value, which `stored` points to, and that; every `step`-th row and column.
 */
void cpu_low_pack(const struct cpu *cpu, const struct cpu_value *value, uint32_t n, uint32_t step,
                  const float *stored, float *low);
void cpu_low_unpack(const struct cpu *cpu, const struct cpu_value *value, uint32_t n, uint32_t step,
                    const float *low, float *stored);

#endif
