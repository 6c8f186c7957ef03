/* Shared by the C APIs of oneDNN 2 and 3. See dnnl.h. */
#include "worker/backend/cpu/dnnl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "worker/backend/cpu/dnnl_api.h"

#define SCRATCH_ALIGN 64

struct cpu_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* the caller provides the scratch memory */
    void *scratch;              /* for all primitives: they run one after the other */
    size_t scratch_bytes;
};

struct cpu_descriptor {
    dnnl_primitive_desc_t pd;
    enum cpu_direction direction;
    const char *layer;
};

struct cpu_prim {
    dnnl_primitive_t prim;
    const char *layer;
    dnnl_exec_arg_t args[CPU_MEMORIES + 1]; /* the scratch memory comes last */
    enum cpu_memory memories[CPU_MEMORIES]; /* which memory each argument before the last is */
    int arg_count;
};

/* One argument of a direction: oneDNN's number for it, and how to query its layout from a
 * descriptor. */
struct argument {
    int arg; /* 0: none */
    dnnl_query_t query;
    int index;
};

static const struct argument arguments[CPU_DIRECTIONS][CPU_MEMORIES] = {
    [CPU_DIRECTION_FORWARD] = {[CPU_IN] = {DNNL_ARG_SRC, dnnl_query_src_md, 0},
                               [CPU_WEIGHTS] = {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                               [CPU_BIAS] = {DNNL_ARG_BIAS, dnnl_query_weights_md, 1},
                               [CPU_OUT] = {DNNL_ARG_DST, dnnl_query_dst_md, 0}},
    [CPU_DIRECTION_DATA] = {[CPU_IN] = {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0},
                            [CPU_WEIGHTS] = {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                            [CPU_OUT] = {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0}},
    [CPU_DIRECTION_WEIGHTS] = {[CPU_IN] = {DNNL_ARG_SRC, dnnl_query_src_md, 0},
                               [CPU_WEIGHTS] = {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md,
                                                0},
                               [CPU_BIAS] = {DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1},
                               [CPU_OUT] = {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0}},
};

static const char *const direction_names[CPU_DIRECTIONS] = {"forward", "backward data",
                                                            "backward weights"};

static enum status check(dnnl_status_t rc, const char *layer, const char *what, struct err *err)
{
    if (rc == dnnl_success)
        return STATUS_OK;
    if (rc == dnnl_out_of_memory)
        return err_set(err, STATUS_MEMORY, (int)rc, "layer %s: %s: out of memory", layer, what);
    if (rc == dnnl_unimplemented)
        return err_set(err, STATUS_UNSUPPORTED, (int)rc,
                       "layer %s: %s: oneDNN has no implementation for its shape", layer, what);
    return err_set(err, STATUS_LIBRARY, (int)rc, "layer %s: %s: oneDNN status %d", layer, what,
                   (int)rc);
}

enum cpu_isa cpu_dnnl_isa(void)
{
    const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();

    if ((isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx)
        return CPU_ISA_AMX;
    if ((isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16)
        return CPU_ISA_AVX512_BF16;
    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core)
        return CPU_ISA_AVX512;
    return (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 ? CPU_ISA_AVX2 : CPU_ISA_ANY;
}

enum status cpu_dnnl_open(struct cpu_dnnl **dnnl, struct err *err)
{
    struct cpu_dnnl *made = calloc(1, sizeof *made);
    dnnl_status_t rc = dnnl_out_of_memory;

    *dnnl = made;
    if (made != NULL)
        rc = dnnl_engine_create(&made->engine, dnnl_cpu, 0);
    if (rc == dnnl_success)
        rc = dnnl_stream_create(&made->stream, made->engine, dnnl_stream_default_flags);
    if (rc == dnnl_success)
        rc = dnnl_primitive_attr_create(&made->attr);
    if (rc == dnnl_success)
        rc = dnnl_primitive_attr_set_scratchpad_mode(made->attr, dnnl_scratchpad_mode_user);
    if (rc != dnnl_success)
        cpu_dnnl_close(dnnl);
    return check(rc, "(network)", "starting oneDNN", err);
}

void cpu_dnnl_close(struct cpu_dnnl **dnnl)
{
    if (*dnnl == NULL)
        return;
    if ((*dnnl)->attr != NULL)
        (void)dnnl_primitive_attr_destroy((*dnnl)->attr);
    if ((*dnnl)->stream != NULL)
        (void)dnnl_stream_destroy((*dnnl)->stream);
    if ((*dnnl)->engine != NULL)
        (void)dnnl_engine_destroy((*dnnl)->engine);
    free((*dnnl)->scratch);
    free(*dnnl);
    *dnnl = NULL;
}

size_t cpu_dnnl_bytes(const struct cpu_dnnl *dnnl)
{
    return dnnl->scratch_bytes;
}

/* -- layouts -- */

static dnnl_format_tag_t tag_of(const struct cpu_shape *shape)
{
    static const dnnl_format_tag_t row_major[CPU_DIMS_MAX] = {dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd};

    assert(shape->dim_count > 0 && shape->dim_count <= CPU_DIMS_MAX);
    switch (shape->order) {
    case CPU_ROW_MAJOR:
        return row_major[shape->dim_count - 1];
    case CPU_BLOCKS_8:
        return dnnl_aBcd8b;
    case CPU_BLOCKS_16:
        return dnnl_aBcd16b;
    case CPU_CHANNELS_LAST:
        return dnnl_acdb;
    case CPU_ORDER_ANY:
        break;
    }
    return dnnl_format_tag_any;
}

static dnnl_status_t open_md(struct cpu_layout *layout, const struct cpu_shape *shape)
{
    dnnl_dims_t dims = {0};

    for (int i = 0; i < shape->dim_count; i++)
        dims[i] = shape->dims[i];
    return cpu_md_open(layout, shape->dim_count, dims,
                       shape->type == CPU_BF16 ? dnnl_bf16 : dnnl_f32, tag_of(shape));
}

/* Allocates a layout from `shape`, or from `md` if that is NULL. */
static enum status new_layout(struct cpu_layout **layout, const struct cpu_shape *shape, cpu_md md,
                              const char *layer, struct err *err)
{
    dnnl_status_t rc = dnnl_out_of_memory;

    *layout = calloc(1, sizeof **layout);
    if (*layout != NULL)
        rc = shape != NULL ? open_md(*layout, shape) : cpu_md_open_copy(*layout, md);
    if (rc != dnnl_success)
        cpu_layout_free(layout);
    return check(rc, layer, "layout", err);
}

enum status cpu_layout_new(struct cpu_layout **layout, const struct cpu_shape *shape,
                           const char *layer, struct err *err)
{
    return new_layout(layout, shape, NULL, layer, err);
}

enum status cpu_layout_copy(struct cpu_layout **copy, const struct cpu_layout *layout,
                            const char *layer, struct err *err)
{
    return new_layout(copy, NULL, cpu_md_of(layout), layer, err);
}

void cpu_layout_free(struct cpu_layout **layout)
{
    if (*layout == NULL)
        return;
    cpu_md_close(*layout);
    free(*layout);
    *layout = NULL;
}

size_t cpu_layout_bytes(const struct cpu_layout *layout)
{
    return dnnl_memory_desc_get_size(cpu_md_of(layout));
}

bool cpu_layout_equal(const struct cpu_layout *a, const struct cpu_layout *b)
{
    return dnnl_memory_desc_equal(cpu_md_of(a), cpu_md_of(b)) != 0;
}

/* -- descriptors -- */

static dnnl_status_t make_pd(dnnl_primitive_desc_t *pd, const struct cpu_operation *operation,
                             enum cpu_direction direction, struct cpu_pd_args *args)
{
    const struct cpu_shape bias_shape = {
        .dim_count = 1, .dims = {operation->out.dims[1]}, .order = CPU_ROW_MAJOR};
    struct cpu_layout in = {0}, out = {0}, bias = {0};
    dnnl_status_t rc = open_md(&in, &operation->in);

    if (rc == dnnl_success)
        rc = open_md(&out, &operation->out);
    if (rc == dnnl_success)
        rc = open_md(&bias, &bias_shape);
    args->in = cpu_md_of(&in);
    args->out = cpu_md_of(&out);
    args->bias = operation->has_bias ? cpu_md_of(&bias) : NULL;
    for (int i = 0; i < 2; i++) {
        args->stride[i] = operation->stride;
        args->pad[i] = operation->pad;
    }
    if (rc == dnnl_success)
        rc = operation->is_conv ? cpu_pd_conv(pd, direction, args)
                                : cpu_pd_product(pd, direction, args);
    cpu_md_close(&in);
    cpu_md_close(&out);
    cpu_md_close(&bias);
    return rc;
}

enum status cpu_descriptor_new(struct cpu_descriptor **descriptor, const struct cpu_dnnl *dnnl,
                               const struct cpu_operation *operation, enum cpu_direction direction,
                               const struct cpu_layout *weights,
                               const struct cpu_descriptor *forward, struct err *err)
{
    struct cpu_descriptor *made = calloc(1, sizeof *made);
    struct cpu_pd_args args = {.weights = cpu_md_of(weights),
                               .engine = dnnl->engine,
                               .attr = dnnl->attr,
                               .forward = forward != NULL ? forward->pd : NULL};
    dnnl_status_t rc = dnnl_out_of_memory;

    assert((direction == CPU_DIRECTION_FORWARD) == (forward == NULL));
    *descriptor = made;
    if (made != NULL) {
        made->direction = direction;
        made->layer = operation->layer;
        rc = make_pd(&made->pd, operation, direction, &args);
    }
    if (rc != dnnl_success)
        cpu_descriptor_free(descriptor);
    return check(rc, operation->layer, direction_names[direction], err);
}

void cpu_descriptor_free(struct cpu_descriptor **descriptor)
{
    if (*descriptor == NULL)
        return;
    if ((*descriptor)->pd != NULL)
        (void)dnnl_primitive_desc_destroy((*descriptor)->pd);
    free(*descriptor);
    *descriptor = NULL;
}

static cpu_md query_md(const struct cpu_descriptor *descriptor, enum cpu_memory memory)
{
    const struct argument *argument = &arguments[descriptor->direction][memory];

    return argument->arg == 0
               ? NULL
               : dnnl_primitive_desc_query_md(descriptor->pd, argument->query, argument->index);
}

enum status cpu_descriptor_weights(struct cpu_layout **layout,
                                   const struct cpu_descriptor *descriptor, struct err *err)
{
    return new_layout(layout, NULL, query_md(descriptor, CPU_WEIGHTS), descriptor->layer, err);
}

/* The name of oneDNN's implementation, such as "jit:avx512_core". */
static const char *name_of(const struct cpu_descriptor *descriptor)
{
    const char *name = NULL;
    const dnnl_status_t rc =
        dnnl_primitive_desc_query(descriptor->pd, dnnl_query_impl_info_str, 0, (void *)&name);

    return rc == dnnl_success && name != NULL ? name : "";
}

bool cpu_descriptor_is_general(const struct cpu_descriptor *descriptor)
{
    return strncmp(name_of(descriptor), "ref", 3) == 0;
}

bool cpu_descriptor_is_bf16(const struct cpu_descriptor *descriptor)
{
    return strstr(name_of(descriptor), cpu_dnnl_isa() == CPU_ISA_AMX ? "amx" : "bf16") != NULL;
}

/* -- primitives -- */

static enum status grow_scratch(struct cpu_dnnl *dnnl, size_t bytes, const char *layer,
                                struct err *err)
{
    const size_t rounded = (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    void *scratch;

    if (rounded <= dnnl->scratch_bytes)
        return STATUS_OK;
    scratch = aligned_alloc(SCRATCH_ALIGN, rounded);
    if (scratch == NULL)
        return check(dnnl_out_of_memory, layer, "scratch memory", err);
    free(dnnl->scratch);
    dnnl->scratch = scratch;
    dnnl->scratch_bytes = rounded;
    return STATUS_OK;
}

static dnnl_status_t add_arg(const struct cpu_dnnl *dnnl, struct cpu_prim *prim, int arg, cpu_md md)
{
    dnnl_memory_t memory;
    const dnnl_status_t rc = dnnl_memory_create(&memory, md, dnnl->engine, DNNL_MEMORY_NONE);

    assert(prim->arg_count <= CPU_MEMORIES);
    if (rc == dnnl_success)
        prim->args[prim->arg_count++] = (dnnl_exec_arg_t){arg, memory};
    return rc;
}

/* Creates the primitive of `pd`. mds[k], args[k]: layout and oneDNN's number of memory k; NULL or
 * an empty layout: there is none. */
static enum status new_prim(struct cpu_prim **prim, struct cpu_dnnl *dnnl,
                            const_dnnl_primitive_desc_t pd, const cpu_md mds[CPU_MEMORIES],
                            const int args[CPU_MEMORIES], const char *layer, struct err *err)
{
    const cpu_md scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    struct cpu_prim *made = calloc(1, sizeof *made);
    dnnl_status_t rc = dnnl_out_of_memory;
    enum status status;

    *prim = made;
    if (made != NULL) {
        made->layer = layer;
        rc = dnnl_primitive_create(&made->prim, pd);
    }
    for (uint32_t k = 0; k < CPU_MEMORIES && rc == dnnl_success; k++) {
        if (mds[k] == NULL || dnnl_memory_desc_get_size(mds[k]) == 0)
            continue;
        made->memories[made->arg_count] = k;
        rc = add_arg(dnnl, made, args[k], mds[k]);
    }
    if (rc == dnnl_success)
        rc = add_arg(dnnl, made, DNNL_ARG_SCRATCHPAD, scratch);
    status = check(rc, layer, "primitive", err);
    if (status == STATUS_OK)
        status = grow_scratch(dnnl, dnnl_memory_desc_get_size(scratch), layer, err);
    if (status != STATUS_OK)
        cpu_prim_free(prim);
    return status;
}

enum status cpu_prim_new(struct cpu_prim **prim, struct cpu_dnnl *dnnl,
                         const struct cpu_descriptor *descriptor, struct err *err)
{
    cpu_md mds[CPU_MEMORIES];
    int args[CPU_MEMORIES];

    for (uint32_t k = 0; k < CPU_MEMORIES; k++) {
        mds[k] = query_md(descriptor, k);
        args[k] = arguments[descriptor->direction][k].arg;
    }
    return new_prim(prim, dnnl, descriptor->pd, mds, args, descriptor->layer, err);
}

enum status cpu_prim_new_convert(struct cpu_prim **prim, struct cpu_dnnl *dnnl,
                                 const struct cpu_layout *from, const struct cpu_layout *to,
                                 const char *layer, struct err *err)
{
    static const int args[CPU_MEMORIES] = {[CPU_IN] = DNNL_ARG_FROM, [CPU_OUT] = DNNL_ARG_TO};
    const cpu_md mds[CPU_MEMORIES] = {[CPU_IN] = cpu_md_of(from), [CPU_OUT] = cpu_md_of(to)};
    dnnl_primitive_desc_t pd = NULL;
    enum status status =
        check(dnnl_reorder_primitive_desc_create(&pd, mds[CPU_IN], dnnl->engine, mds[CPU_OUT],
                                                 dnnl->engine, dnnl->attr),
              layer, "reorder", err);

    *prim = NULL;
    if (status != STATUS_OK)
        return status;
    status = new_prim(prim, dnnl, pd, mds, args, layer, err);
    (void)dnnl_primitive_desc_destroy(pd);
    return status;
}

void cpu_prim_free(struct cpu_prim **prim)
{
    if (*prim == NULL)
        return;
    for (int i = 0; i < (*prim)->arg_count; i++)
        (void)dnnl_memory_destroy((*prim)->args[i].memory);
    if ((*prim)->prim != NULL)
        (void)dnnl_primitive_destroy((*prim)->prim);
    free(*prim);
    *prim = NULL;
}

enum status cpu_prim_run(struct cpu_dnnl *dnnl, struct cpu_prim *prim,
                         const void *const memory[CPU_MEMORIES], struct err *err)
{
    dnnl_status_t rc = dnnl_success;

    for (int i = 0; i < prim->arg_count && rc == dnnl_success; i++) {
        const void *data = i + 1 < prim->arg_count ? memory[prim->memories[i]] : dnnl->scratch;

        rc = dnnl_memory_set_data_handle(prim->args[i].memory, (void *)(uintptr_t)data);
    }
    if (rc == dnnl_success)
        rc = dnnl_primitive_execute(prim->prim, dnnl->stream, prim->arg_count, prim->args);
    return check(rc, prim->layer, "execute", err);
}
