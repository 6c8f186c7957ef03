/* Convolution and linear layers as oneDNN primitives: forward, backward to the input, backward to
 * the weights. One set of primitives for each number of images, and copies of the weights where a
 * direction reads another layout or type than the one that is stored.
 *
 * A layer provides `describe`, which makes the descriptor of a direction. The rest is here. */
#ifndef WORKER_BACKEND_CPU_PRODUCT_H
#define WORKER_BACKEND_CPU_PRODUCT_H

#include <stdint.h>

#include "worker/backend/cpu/internal.h"

#define CPU_PRODUCT_SETS_MAX 8

enum cpu_direction {
    CPU_DIRECTION_FORWARD,
    CPU_DIRECTION_DATA,    /* gradient of the input */
    CPU_DIRECTION_WEIGHTS, /* gradients of weights and bias */
    CPU_DIRECTIONS
};

/* Makes the descriptor of one direction for n images.
 *   weights: layout of the weights, or of their gradient; may be "any"
 *   hint: the descriptor of forward; NULL for forward itself */
typedef dnnl_status_t (*cpu_describe)(const struct cpu *cpu, const struct cpu_layer *layer,
                                      uint32_t n, enum cpu_direction direction,
                                      const dnnl_memory_desc_t *weights,
                                      const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd);

/* The primitives for one number of images. */
struct cpu_product_set {
    uint32_t n; /* images; 0: unused */
    struct cpu_prim prims[CPU_DIRECTIONS];
};

struct cpu_product {
    cpu_describe describe;
    dnnl_memory_desc_t weights_mds[CPU_DIRECTIONS];
    bool is_general[CPU_DIRECTIONS]; /* oneDNN has no vector code for it here: very slow */
    float *copies[CPU_DIRECTIONS];   /* weights in that layout; NULL: the tensor has it */
    struct cpu_prim converts[CPU_DIRECTIONS];
    struct cpu_product_set sets[CPU_PRODUCT_SETS_MAX];
    uint32_t set_next; /* replaced next when all are in use */
};

/* What a direction reads and writes. Backward, `out` is the gradient of the output, and `in` (data)
 * or weights and bias (weights) are gradients. */
struct cpu_product_memory {
    const void *in, *weights, *bias, *out; /* bias NULL: none */
};

/* Asks oneDNN for the best layout of the weights in each direction: of `type` for forward and data,
 * fp32 for their gradient. dnnl_unimplemented where oneDNN lacks a direction. */
dnnl_status_t cpu_product_choose(const struct cpu *cpu, const struct cpu_layer *layer,
                                 struct cpu_product *product, uint32_t n, const dnnl_dims_t dims,
                                 int dim_count, dnnl_data_type_t type);
/* Requests the copies; cpu_tensor_set_layout() came before. Errors: STATUS_MEMORY. */
enum status cpu_product_request(struct cpu *cpu, struct cpu_layer *layer,
                                struct cpu_product *product, struct err *err);
void cpu_product_close(struct cpu_product *product);

/* Makes the descriptor of one direction of a matrix product (oneDNN's inner product) from its
 * memory layouts; `bias` may be NULL. For a cpu_describe. */
dnnl_status_t cpu_product_describe(const struct cpu *cpu, enum cpu_direction direction,
                                   const dnnl_memory_desc_t *in, const dnnl_memory_desc_t *weights,
                                   const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *out,
                                   const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd);

/* The set for n images, made at its first use; it replaces the oldest one if there are too many. */
enum status cpu_product_find(struct cpu *cpu, struct cpu_layer *layer, struct cpu_product *product,
                             uint32_t n, struct cpu_product_set **set, struct err *err);
/* Forward and data, before the first run of a step: copies the weights into the layout and type
 * that the direction reads. Weights, after its last run: copies the result into the tensor's
 * gradient. */
enum status cpu_product_convert(struct cpu *cpu, struct cpu_layer *layer,
                                struct cpu_product *product, enum cpu_direction direction,
                                struct err *err);
/* The weights that a direction reads, or the gradient that it writes: the copy or the tensor. */
float *cpu_product_weights(const struct cpu_layer *layer, const struct cpu_product *product,
                           enum cpu_direction direction);
enum status cpu_product_run(struct cpu *cpu, const struct cpu_layer *layer,
                            struct cpu_product_set *set, enum cpu_direction direction,
                            const struct cpu_product_memory *memory, struct err *err);

#endif
