/* Copies of values as fp32 without padding, in another order, for convolutions that oneDNN computes
 * faster that way. */
#ifndef WORKER_BACKEND_CPU_ORDER_H
#define WORKER_BACKEND_CPU_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "worker/backend/cpu/internal.h"

/* n images of a value in `order` (CPU_CHANNELS_LAST or CPU_ROW_MAJOR), as the primitives see
 * them. */
struct cpu_shape cpu_order_shape(const struct cpu_value *value, enum cpu_order order, uint32_t n);
/* Bytes of n images of such a copy. */
size_t cpu_order_bytes(const struct cpu_value *value, uint32_t n);
/* copy = the n images of `value` at `memory`. */
void cpu_order_read(const struct cpu *cpu, const struct cpu_value *value, uint32_t n,
                    const float *memory, enum cpu_order order, float *copy);
/* memory = copy; padding becomes 0. */
void cpu_order_write(const struct cpu *cpu, const struct cpu_value *value, uint32_t n,
                     const float *copy, enum cpu_order order, float *memory);

#endif
