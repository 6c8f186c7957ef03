/* The part of oneDNN's C API that the layers use, with errors that name the layer. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <stdlib.h>

enum status cpu_check(dnnl_status_t rc, const struct cpu_layer *layer, const char *what,
                      struct err *err)
{
    const char *name = layer != NULL ? layer->graph->name : "network";

    if (rc == dnnl_success)
        return STATUS_OK;
    if (rc == dnnl_out_of_memory)
        return err_set(err, STATUS_MEMORY, (int)rc, "layer %s: %s: out of memory", name, what);
    if (rc == dnnl_unimplemented)
        return err_set(err, STATUS_UNSUPPORTED, (int)rc,
                       "layer %s: %s: oneDNN has no implementation for its shape", name, what);
    return err_set(err, STATUS_LIBRARY, (int)rc, "layer %s: %s: oneDNN status %d", name, what,
                   (int)rc);
}

dnnl_status_t cpu_value_md(const struct cpu *cpu, const struct cpu_value *value, uint32_t n,
                           dnnl_memory_desc_t *md)
{
    const dnnl_dims_t dims = {n, value->dims[0], value->dims[1], value->dims[2]};

    if (value->blocked)
        return dnnl_memory_desc_init_by_tag(md, 4, dims, dnnl_f32,
                                            cpu->kernels->block == 16 ? dnnl_nChw16c : dnnl_nChw8c);
    if (value->dims[1] == 1 && value->dims[2] == 1)
        return dnnl_memory_desc_init_by_tag(md, 2, dims, dnnl_f32, dnnl_nc);
    return dnnl_memory_desc_init_by_tag(md, 4, dims, dnnl_f32, dnnl_nchw);
}

void cpu_vector_md(size_t count, dnnl_memory_desc_t *md)
{
    const dnnl_dims_t dims = {(dnnl_dim_t)count};
    dnnl_status_t rc = dnnl_memory_desc_init_by_tag(md, 1, dims, dnnl_f32, dnnl_a);

    assert(rc == dnnl_success);
    (void)rc;
}

/* All primitives share one scratchpad: they run one after the other. */
static enum status grow_scratch(struct cpu *cpu, size_t bytes, const struct cpu_layer *layer,
                                struct err *err)
{
    void *scratch;

    if (bytes <= cpu->scratch_bytes)
        return STATUS_OK;
    scratch = cpu_alloc(cpu, bytes);
    if (scratch == NULL)
        return cpu_out_of_memory(layer, err);
    free(cpu->scratch);
    cpu->bytes -= cpu->scratch_bytes;
    cpu->scratch = scratch;
    cpu->scratch_bytes = bytes;
    return STATUS_OK;
}

enum status cpu_prim_arg(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_prim *prim,
                         int arg, const dnnl_memory_desc_t *md, const void *data, struct err *err)
{
    dnnl_memory_t memory;
    enum status status;

    assert(prim->arg_count < CPU_PRIM_ARGS_MAX);
    status = cpu_check(dnnl_memory_create(&memory, md, cpu->engine, (void *)(uintptr_t)data), layer,
                       "memory", err);
    if (status == STATUS_OK)
        prim->args[prim->arg_count++] = (dnnl_exec_arg_t){arg, memory};
    return status;
}

enum status cpu_prim_make(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_prim *prim,
                          dnnl_primitive_desc_t pd, struct err *err)
{
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    enum status status = cpu_check(dnnl_primitive_create(&prim->prim, pd), layer, "primitive", err);

    if (status == STATUS_OK)
        status = grow_scratch(cpu, dnnl_memory_desc_get_size(scratch), layer, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_SCRATCHPAD, scratch, NULL, err);
    (void)dnnl_primitive_desc_destroy(pd);
    return status;
}

void cpu_prim_point(struct cpu_prim *prim, int arg, const void *data)
{
    for (int i = 0; i < prim->arg_count; i++)
        if (prim->args[i].arg == arg)
            (void)dnnl_memory_set_data_handle(prim->args[i].memory, (void *)(uintptr_t)data);
}

enum status cpu_prim_run(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_prim *prim,
                         struct err *err)
{
    assert(prim->prim != NULL && prim->arg_count <= CPU_PRIM_ARGS_MAX);
    cpu_prim_point(prim, DNNL_ARG_SCRATCHPAD, cpu->scratch); /* it may have grown since */
    return cpu_check(dnnl_primitive_execute(prim->prim, cpu->stream, prim->arg_count, prim->args),
                     layer, "execute", err);
}

void cpu_prim_close(struct cpu_prim *prim)
{
    for (int i = 0; i < prim->arg_count; i++)
        (void)dnnl_memory_destroy(prim->args[i].memory);
    prim->arg_count = 0;
    if (prim->prim != NULL)
        (void)dnnl_primitive_destroy(prim->prim);
    prim->prim = NULL;
}

enum status cpu_reorder_make(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_prim *prim,
                             const dnnl_memory_desc_t *from_md, const float *from,
                             const dnnl_memory_desc_t *to_md, float *to, struct err *err)
{
    dnnl_primitive_desc_t pd;
    enum status status = cpu_check(dnnl_reorder_primitive_desc_create(
                                       &pd, from_md, cpu->engine, to_md, cpu->engine, cpu->attr),
                                   layer, "reorder", err);

    if (status != STATUS_OK)
        return status;
    status = cpu_prim_make(cpu, layer, prim, pd, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_FROM, from_md, from, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_TO, to_md, to, err);
    if (status != STATUS_OK)
        cpu_prim_close(prim);
    return status;
}

enum status cpu_reorder(struct cpu *cpu, const dnnl_memory_desc_t *from_md, const float *from,
                        const dnnl_memory_desc_t *to_md, float *to, struct err *err)
{
    struct cpu_prim prim = {0};
    enum status status = cpu_reorder_make(cpu, NULL, &prim, from_md, from, to_md, to, err);

    if (status == STATUS_OK)
        status = cpu_prim_run(cpu, NULL, &prim, err);
    cpu_prim_close(&prim);
    return status;
}
