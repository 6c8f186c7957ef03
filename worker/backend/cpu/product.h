/* Convolution and linear layers as oneDNN primitives: forward, backward to the input, backward to
 * the weights. There is one set of primitives for each number of images, and a copy of the weights
 * if a direction reads another layout or type than the stored one.
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
    bool is_general[CPU_DIRECTIONS]; /* the direction is run, but oneDNN has no vector code for it:
                                        very slow */
    float *copies[CPU_DIRECTIONS];   /* weights in that layout; NULL: the tensor has that layout */
    struct cpu_prim *converts[CPU_DIRECTIONS]; /* created when first used */
    struct cpu_product_set sets[CPU_PRODUCT_SETS_MAX];
    uint32_t set_next; /* the next set to replace when all are in use */
};

/* What a direction reads and writes. In backward, `out` is the gradient of the output; `in` (data)
 * or weights and bias (weights) are gradients too. */
struct cpu_product_memory {
    const void *in, *weights, *bias, *out; /* bias NULL: none */
};

/* Sets product->describe, and asks oneDNN for the best layout of the weights in each direction: of
 * `type` for forward and data, fp32 for their gradient.
 *   plain: the row-major shape of the weights in fp32
 *   n: number of images for which to choose
 * Errors: STATUS_UNSUPPORTED if oneDNN lacks a direction, or has no fast bf16; then `product` is
 * empty. */
enum status cpu_product_choose(const struct cpu *cpu, const struct cpu_layer *layer,
                               struct cpu_product *product, cpu_describe describes, uint32_t n,
                               const struct cpu_shape *plain, enum cpu_type type, struct err *err);
/* Sets product->describe, and one layout for all directions. */
enum status cpu_product_set(const struct cpu_layer *layer, struct cpu_product *product,
                            cpu_describe describes, const struct cpu_shape *weights,
                            struct err *err);
/* Stores the layer's weights (`shape`) as `wide` (cpu_weights_set_layout) in the layout `stored`.
 * The primitives see it as `seen`: the same bytes, maybe with other dimensions. Both layouts may
 * belong to `product`. */
enum status cpu_product_store(struct cpu_layer *layer, struct cpu_product *product,
                              const struct cpu_shape *shape, const struct cpu_shape *wide,
                              const struct cpu_layout *stored, const struct cpu_layout *seen,
                              struct err *err);
/* Requests the copies; call cpu_product_store() before. Errors: STATUS_MEMORY. */
enum status cpu_product_request(struct cpu *cpu, struct cpu_layer *layer,
                                struct cpu_product *product, struct err *err);
void cpu_product_close(struct cpu_product *product);

/* The set for n images, created at its first use; if there are too many sets, it replaces the
 * oldest one. */
enum status cpu_product_find(struct cpu *cpu, struct cpu_layer *layer, struct cpu_product *product,
                             uint32_t n, struct cpu_product_set **set, struct err *err);
/* For forward and data, before the first run of a step: copies the weights to the layout and type
 * that the direction reads. For weights, after the last run: copies the result to the tensor's
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
