/* How a convolution is computed; shared by conv.c, the step, and conv_choose.c. */
#ifndef WORKER_BACKEND_CPU_CONV_H
#define WORKER_BACKEND_CPU_CONV_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/backend/cpu/half.h"
#include "worker/backend/cpu/product.h"

/* One of four ways: in fp32 on the values' channel blocks; in fp32 on copies of the values; in
 * bf16; in bf16 as a matrix product over pixels. */
struct cpu_conv {
    struct cpu_product product;
    struct cpu_half half;                 /* computed in bf16; the fp32 way uses its copies too */
    bool is_matrix;                       /* a matrix product over pixels */
    bool on_copies;                       /* in fp32 on copies without padding */
    enum cpu_order order[CPU_DIRECTIONS]; /* the order of these copies */
    bool own_weights;                     /* our own loops compute the gradient of the weights */
    uint32_t chunk;                       /* images per chunk */
    float *partial; /* gradient of the weights, then of the bias, of one chunk */
    float
        *input_grad; /* gradient of the input for one chunk, before it is added; NULL: not needed */
};

/* Chooses one of the four ways, and the layouts of the weights. `layer->own` is `conv`; its chunk
 * is set already. */
enum status cpu_conv_choose(const struct cpu *cpu, struct cpu_layer *layer, struct cpu_conv *conv,
                            struct err *err);
/* Output channels as the primitives write them: with padding if they write blocks. */
size_t cpu_conv_channels(const struct cpu *cpu, const struct cpu_layer *layer);

#endif
