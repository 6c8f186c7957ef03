/* Layers that are a product with weights, convolution and linear: their oneDNN primitives, one set
 * for each number of images, and the weights in the layouts that the three directions read.
 *
 * A layer says how each direction looks (`describe`); layouts, primitives, copies of the weights
 * and the runs are the same for all and are here. */
#ifndef WORKER_BACKEND_CPU_CPU_PRODUCT_H
#define WORKER_BACKEND_CPU_CPU_PRODUCT_H

#include <stdint.h>

#include "worker/backend/cpu/cpu.h"

#define CPU_PRODUCT_SETS_MAX 8

enum cpu_direction {
    CPU_DIRECTION_FORWARD,
    CPU_DIRECTION_DATA,    /* backward to the input */
    CPU_DIRECTION_WEIGHTS, /* backward to weights and bias */
    CPU_DIRECTIONS
};

/* Makes the descriptor of one direction for n images with weights (or their gradient) of `weights`.
 * `hint`: forward's descriptor; NULL for forward itself. */
typedef dnnl_status_t (*cpu_describe)(const struct cpu *cpu, const struct cpu_layer *layer,
                                      uint32_t n, enum cpu_direction direction,
                                      const dnnl_memory_desc_t *weights,
                                      const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd);

/* The primitives for one number of images. */
struct cpu_product_set {
    uint32_t n; /* 0: free */
    struct cpu_prim prims[CPU_DIRECTIONS];
};

struct cpu_product {
    cpu_describe describe;
    dnnl_memory_desc_t weights_mds[CPU_DIRECTIONS];
    float *copies[CPU_DIRECTIONS]; /* weights in weights_mds; NULL: the tensor itself will do */
    struct cpu_prim converts[CPU_DIRECTIONS];
    struct cpu_product_set sets[CPU_PRODUCT_SETS_MAX];
    uint32_t set_next;
};

/* What a direction reads and writes: values of a backward direction are gradients. */
struct cpu_product_memory {
    const void *in, *weights, *bias, *out; /* bias: NULL where there is none */
};

/* Asks oneDNN which layouts of the weights, of `type` forward and to the data, fp32 for their
 * gradient, it likes best. dnnl_unimplemented: a direction is missing. */
dnnl_status_t cpu_product_choose(const struct cpu *cpu, const struct cpu_layer *layer,
                                 struct cpu_product *product, uint32_t n, const dnnl_dims_t dims,
                                 int dim_count, dnnl_data_type_t type);
/* Room for the copies; the tensor's `stored` layout is set. Errors: STATUS_MEMORY. */
enum status cpu_product_want(struct cpu *cpu, struct cpu_layer *layer, struct cpu_product *product,
                             struct err *err);
void cpu_product_close(struct cpu_product *product);

/* The set for n images; made at its first use, in place of the oldest when there are too many. */
enum status cpu_product_find(struct cpu *cpu, struct cpu_layer *layer, struct cpu_product *product,
                             uint32_t n, struct cpu_product_set **set, struct err *err);
/* Before the first run of a step: the weights into the layout (and type) that the direction reads.
 * Behind CPU_DIRECTION_WEIGHTS: its sum into the tensor's gradient. */
enum status cpu_product_convert(struct cpu *cpu, struct cpu_layer *layer,
                                struct cpu_product *product, enum cpu_direction direction,
                                struct err *err);
/* Where the direction reads its weights, or leaves their gradient. */
float *cpu_product_weights(const struct cpu_layer *layer, const struct cpu_product *product,
                           enum cpu_direction direction);
enum status cpu_product_run(struct cpu *cpu, const struct cpu_layer *layer,
                            struct cpu_product_set *set, enum cpu_direction direction,
                            const struct cpu_product_memory *memory, struct err *err);

#endif
