/* oneDNN as this backend uses it: convolutions, matrix products, conversions between layouts.
 *
 *     dnnl.c    shared by the C APIs of oneDNN 2 and 3: engine, primitives, memory
 *     dnnl2.c   oneDNN 2: memory descriptors are values; an operation is described in two steps
 *     dnnl3.c   oneDNN 3: memory descriptors are handles; one step
 *
 * meson builds dnnl2.c or dnnl3.c, depending on the version that it finds. Only these files include
 * oneDNN's header, through dnnl_api.h. Nothing here is thread-safe.
 *
 * Errors: STATUS_UNSUPPORTED, oneDNN has no implementation for the shape; STATUS_MEMORY;
 * STATUS_LIBRARY, with oneDNN's status in err->code. Texts begin with the layer's name. */
#ifndef WORKER_BACKEND_CPU_DNNL_H
#define WORKER_BACKEND_CPU_DNNL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define CPU_DIMS_MAX 4
#define CPU_INNER_BLOCKS_MAX 8 /* oneDNN uses four at most */
#define CPU_LAYOUT_NUMBERS_MAX (1 + 2 * CPU_DIMS_MAX + 2 * CPU_INNER_BLOCKS_MAX)

enum cpu_type { CPU_F32, CPU_BF16 };

enum cpu_order {
    CPU_ROW_MAJOR,
    CPU_BLOCKS_8,      /* [n][channels / 8][height][width][8], channels padded */
    CPU_BLOCKS_16,     /* the same with 16 */
    CPU_CHANNELS_LAST, /* [n][height][width][channels] */
    CPU_ORDER_ANY      /* only for weights: the best order for the operation */
};

/* Dimensions, type and order of a tensor. The last three orders are for four dimensions. */
struct cpu_shape {
    int dim_count;
    int64_t dims[CPU_DIMS_MAX];
    enum cpu_type type;
    enum cpu_order order;
};

enum cpu_direction {
    CPU_DIRECTION_FORWARD,
    CPU_DIRECTION_DATA,    /* gradient of the input */
    CPU_DIRECTION_WEIGHTS, /* gradients of weights and bias */
    CPU_DIRECTIONS
};

/* A convolution, or a matrix product: y[rows][out] = x[rows][in] * weights[out][in]^T + bias[out].
 * The bias is fp32. */
struct cpu_operation {
    const char *layer; /* for errors; must outlive everything that is made from the operation */
    bool is_conv;
    bool has_bias;
    int64_t stride, pad;      /* of a convolution, in both directions */
    struct cpu_shape in, out; /* their gradients have the same shapes */
};

/* The instruction sets that matter here, in ascending order: each includes those before it. The
 * environment variable ONEDNN_MAX_CPU_ISA hides some. */
enum cpu_isa {
    CPU_ISA_ANY,
    CPU_ISA_AVX2,
    CPU_ISA_AVX512,
    CPU_ISA_AVX512_BF16, /* dot products of bf16 */
    CPU_ISA_AMX          /* products of bf16 matrices */
};
enum cpu_isa cpu_dnnl_isa(void);

/* The library, with the scratch memory that all primitives share. */
struct cpu_dnnl;

enum status cpu_dnnl_open(struct cpu_dnnl **dnnl, struct err *err);
void cpu_dnnl_close(struct cpu_dnnl **dnnl); /* after everything else is closed */
size_t cpu_dnnl_bytes(const struct cpu_dnnl *dnnl);

/* A shape whose order may be one that oneDNN chose. Immutable. */
struct cpu_layout;

enum status cpu_layout_new(struct cpu_layout **layout, const struct cpu_shape *shape,
                           const char *layer, struct err *err);
enum status cpu_layout_copy(struct cpu_layout **copy, const struct cpu_layout *layout,
                            const char *layer, struct err *err);
void cpu_layout_free(struct cpu_layout **layout);
size_t cpu_layout_bytes(const struct cpu_layout *layout); /* with padding */
bool cpu_layout_equal(const struct cpu_layout *a, const struct cpu_layout *b);
/* Type, padded dimensions, strides and inner blocks. The numbers of two layouts are equal only if
 * the layouts are. Returns how many numbers there are. */
uint32_t cpu_layout_numbers(const struct cpu_layout *layout,
                            uint64_t numbers[CPU_LAYOUT_NUMBERS_MAX]);

/* How oneDNN would run one direction of an operation. */
struct cpu_descriptor;

/*   weights: layout of the weights, or of their gradient; its order may be CPU_ORDER_ANY
 *   forward: the descriptor of forward; NULL for forward itself */
enum status cpu_descriptor_new(struct cpu_descriptor **descriptor, const struct cpu_dnnl *dnnl,
                               const struct cpu_operation *operation, enum cpu_direction direction,
                               const struct cpu_layout *weights,
                               const struct cpu_descriptor *forward, struct err *err);
void cpu_descriptor_free(struct cpu_descriptor **descriptor);
/* The layout that oneDNN chose for the weights, or for their gradient. The caller frees it. */
enum status cpu_descriptor_weights(struct cpu_layout **layout,
                                   const struct cpu_descriptor *descriptor, struct err *err);
/* Whether oneDNN would use its general code, without vectors, which is very slow. */
bool cpu_descriptor_is_general(const struct cpu_descriptor *descriptor);
/* Whether it computes in bf16 with this CPU's best instructions for it, CPU_ISA_AVX512_BF16 or
 * CPU_ISA_AMX. */
bool cpu_descriptor_is_bf16(const struct cpu_descriptor *descriptor);

/* The memory of a primitive: the tensors of the operation, or their gradients; a conversion reads
 * CPU_IN and writes CPU_OUT. */
enum cpu_memory { CPU_IN, CPU_WEIGHTS, CPU_BIAS, CPU_OUT, CPU_MEMORIES };

/* A oneDNN primitive, ready to run. */
struct cpu_prim;

enum status cpu_prim_new(struct cpu_prim **prim, struct cpu_dnnl *dnnl,
                         const struct cpu_descriptor *descriptor, struct err *err);
/* Converts between two layouts of the same dimensions. */
enum status cpu_prim_new_convert(struct cpu_prim **prim, struct cpu_dnnl *dnnl,
                                 const struct cpu_layout *from, const struct cpu_layout *to,
                                 const char *layer, struct err *err);
void cpu_prim_free(struct cpu_prim **prim);
/* Runs the primitive. Memory that it does not use may be NULL. */
enum status cpu_prim_run(struct cpu_dnnl *dnnl, struct cpu_prim *prim,
                         const void *const memory[CPU_MEMORIES], struct err *err);

#endif
