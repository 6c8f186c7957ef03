/* Convolution and linear layers as oneDNN primitives: forward, backward to the input, backward to
 * the weights. One set of primitives for each number of images, and copies of the weights where a
 * direction reads another layout or type than the one that is stored.
 *
 * A layer provides a cpu_describe; the rest is here. */
#ifndef WORKER_BACKEND_CPU_PRODUCT_H
#define WORKER_BACKEND_CPU_PRODUCT_H

#include <stdint.h>

#include "worker/backend/cpu/internal.h"

#define CPU_PRODUCT_SETS_MAX 8

/* Describes the layer for n images as a direction computes it. Orders of values may differ between
 * directions, dimensions may not. */
typedef struct cpu_operation (*cpu_describe)(const struct cpu *cpu, const struct cpu_layer *layer,
                                             uint32_t n, enum cpu_direction direction);

/* The primitives for one number of images. */
struct cpu_product_set {
    uint32_t n; /* images; 0: unused */
    struct cpu_prim *prims[CPU_DIRECTIONS];
};

struct cpu_product {
    cpu_describe describe;
    struct cpu_layout *weights[CPU_DIRECTIONS]; /* NULL: the net never runs it */
    struct cpu_layout *stored;       /* the tensor's layout, with the dimensions of `weights` */
    bool is_general[CPU_DIRECTIONS]; /* is run, and oneDNN has no vector code for it here: very
                                        slow */
    float *copies[CPU_DIRECTIONS];   /* weights in that layout; NULL: the tensor has it */
    struct cpu_prim *converts[CPU_DIRECTIONS]; /* made when first used */
    struct cpu_product_set sets[CPU_PRODUCT_SETS_MAX];
    uint32_t set_next; /* replaced next when all are in use */
};

/* What a direction reads and writes. Backward, `out` is the gradient of the output, and `in` (data)
 * or weights and bias (weights) are gradients. */
struct cpu_product_memory {
    const void *in, *weights, *bias, *out; /* bias NULL: none */
};

/* Sets product->describe, and asks oneDNN for the best layout of the weights in each direction: of `type`
 * for forward and data, fp32 for their gradient.
 *   plain: the row-major shape of the weights in fp32
 *   n: number of images that the choice is for
 * Errors: STATUS_UNSUPPORTED where oneDNN lacks a direction, or has no fast bf16;
 * then nothing is left in `product`. */
enum status cpu_product_choose(const struct cpu *cpu, const struct cpu_layer *layer,
                               struct cpu_product *product, cpu_describe describes, uint32_t n,
                               const struct cpu_shape *plain, enum cpu_type type, struct err *err);
/* Sets product->describe, and one layout for all directions. */
enum status cpu_product_set(const struct cpu_layer *layer, struct cpu_product *product,
                            cpu_describe describes, const struct cpu_shape *weights,
                            struct err *err);
/* Stores the weights of the layer, `shape`, as `wide` (cpu_weights_set_layout) in the layout
 * `stored`, which the primitives see as `seen`: the same bytes, maybe with other dimensions. Both
 * may belong to `product`. */
enum status cpu_product_store(struct cpu_layer *layer, struct cpu_product *product,
                              const struct cpu_shape *shape, const struct cpu_shape *wide,
                              const struct cpu_layout *stored, const struct cpu_layout *seen,
                              struct err *err);
/* Requests the copies; cpu_product_store() came before. Errors: STATUS_MEMORY. */
enum status cpu_product_request(struct cpu *cpu, struct cpu_layer *layer,
                                struct cpu_product *product, struct err *err);
void cpu_product_close(struct cpu_product *product);

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
enum status cpu_product_run(const struct cpu *cpu, const struct cpu_product_set *set,
                            enum cpu_direction direction, const struct cpu_product_memory *memory,
                            struct err *err);

#endif
