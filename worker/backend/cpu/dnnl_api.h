/* Internal to dnnl.h: what dnnl2.c and dnnl3.c provide to dnnl.c. */
#ifndef WORKER_BACKEND_CPU_DNNL_API_H
#define WORKER_BACKEND_CPU_DNNL_API_H

#include <oneapi/dnnl/dnnl.h>

#include "worker/backend/cpu/dnnl.h"

/* A memory descriptor as oneDNN's functions take and return it: a pointer in both versions. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t cpu_md;
#else
typedef const dnnl_memory_desc_t *cpu_md;
#endif

struct cpu_layout {
    dnnl_memory_desc_t md; /* oneDNN 2: the descriptor; oneDNN 3: a handle, owned by the layout */
};

dnnl_status_t cpu_md_open(struct cpu_layout *layout, int dim_count, const dnnl_dims_t dims,
                          dnnl_data_type_t type, dnnl_format_tag_t tag);
dnnl_status_t cpu_md_open_copy(struct cpu_layout *layout, cpu_md md);
/* A layout of only zeros is allowed. */
void cpu_md_close(struct cpu_layout *layout);
cpu_md cpu_md_of(const struct cpu_layout *layout);

/* The descriptor of one direction of a convolution or matrix product. */
struct cpu_pd_args {
    cpu_md in, weights, bias, out; /* bias: NULL for none */
    dnnl_dims_t stride, pad;
    dnnl_engine_t engine;
    const_dnnl_primitive_attr_t attr;
    const_dnnl_primitive_desc_t forward; /* NULL for forward itself */
};

dnnl_status_t cpu_pd_conv(dnnl_primitive_desc_t *pd, enum cpu_direction direction,
                          const struct cpu_pd_args *args);
dnnl_status_t cpu_pd_product(dnnl_primitive_desc_t *pd, enum cpu_direction direction,
                             const struct cpu_pd_args *args);

#endif
