/* Primitives and weights of convolution and linear layers. See product.h. */
#include "worker/backend/cpu/product.h"

#include <assert.h>
#include <string.h>

#define MEMORIES 4

/* One argument of a direction: oneDNN's number for it, and how to ask a descriptor for its layout.
 */
struct argument {
    int arg;
    dnnl_query_t query;
    int index;
};

/* In the order of struct cpu_product_memory. */
static const struct argument arguments[CPU_DIRECTIONS][MEMORIES] = {
    [CPU_DIRECTION_FORWARD] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
                               {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                               {DNNL_ARG_BIAS, dnnl_query_weights_md, 1},
                               {DNNL_ARG_DST, dnnl_query_dst_md, 0}},
    [CPU_DIRECTION_DATA] = {{DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0},
                            {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                            {0},
                            {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0}},
    [CPU_DIRECTION_WEIGHTS] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
                               {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0},
                               {DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1},
                               {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0}},
};

static const char *const direction_names[CPU_DIRECTIONS] = {"forward", "backward data",
                                                            "backward weights"};

/* Whether this net ever runs a direction of this layer. */
static bool runs(const struct cpu *cpu, const struct cpu_layer *layer, enum cpu_direction direction)
{
    if (direction == CPU_DIRECTION_FORWARD)
        return true;
    return !cpu->evaluate_only && (direction == CPU_DIRECTION_WEIGHTS || layer->in->needs_grad);
}

/* Stores the layout of the weights that the descriptor chose, and what it chose; destroys `pd`. */
static void keep_layout(struct cpu_product *product, enum cpu_direction direction,
                        dnnl_primitive_desc_t pd)
{
    const struct argument *weights = &arguments[direction][1];
    const char *name = NULL;

    product->is_general[direction] =
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) == dnnl_success &&
        strncmp(name, "ref", 3) == 0;

    product->weights_mds[direction] =
        *dnnl_primitive_desc_query_md(pd, weights->query, weights->index);
    (void)dnnl_primitive_desc_destroy(pd);
}

dnnl_status_t cpu_product_choose(const struct cpu *cpu, const struct cpu_layer *layer,
                                 struct cpu_product *product, uint32_t n, const dnnl_dims_t dims,
                                 int dim_count, dnnl_data_type_t type)
{
    dnnl_memory_desc_t half, full;
    dnnl_primitive_desc_t forward = NULL, pd = NULL;
    dnnl_status_t rc =
        dnnl_memory_desc_init_by_tag(&half, dim_count, dims, type, dnnl_format_tag_any);

    if (rc == dnnl_success)
        rc = dnnl_memory_desc_init_by_tag(&full, dim_count, dims, dnnl_f32, dnnl_format_tag_any);
    if (rc == dnnl_success)
        rc = product->describe(cpu, layer, n, CPU_DIRECTION_FORWARD, &half, NULL, &forward);
    if (rc != dnnl_success)
        return rc;
    if (layer->in->needs_grad) {
        rc = product->describe(cpu, layer, n, CPU_DIRECTION_DATA, &half, forward, &pd);
        if (rc == dnnl_success)
            keep_layout(product, CPU_DIRECTION_DATA, pd);
    }
    if (rc == dnnl_success)
        rc = product->describe(cpu, layer, n, CPU_DIRECTION_WEIGHTS, &full, forward, &pd);
    if (rc == dnnl_success)
        keep_layout(product, CPU_DIRECTION_WEIGHTS, pd);
    keep_layout(product, CPU_DIRECTION_FORWARD, forward);
    return rc;
}

enum status cpu_product_request(struct cpu *cpu, struct cpu_layer *layer,
                                struct cpu_product *product, struct err *err)
{
    const uint32_t now = (uint32_t)(layer - cpu->layers);
    enum status status = STATUS_OK;

    for (uint32_t d = 0; d < CPU_DIRECTIONS && status == STATUS_OK; d++) {
        const dnnl_memory_desc_t *md = &product->weights_mds[d];
        const size_t bytes = dnnl_memory_desc_get_size(md);

        if (!runs(cpu, layer, d) || dnnl_memory_desc_equal(md, &layer->tensors[0].stored) != 0)
            continue;
        status = d == CPU_DIRECTION_FORWARD
                     ? cpu_request(cpu, layer, &product->copies[d], bytes, now, now, err)
                     : cpu_request_in_backward(cpu, layer, &product->copies[d], bytes, err);
    }
    return status;
}

static void close_set(struct cpu_product_set *set)
{
    for (uint32_t d = 0; d < CPU_DIRECTIONS; d++)
        cpu_prim_close(&set->prims[d]);
    set->n = 0;
}

void cpu_product_close(struct cpu_product *product)
{
    for (uint32_t i = 0; i < CPU_PRODUCT_SETS_MAX; i++)
        close_set(&product->sets[i]);
    for (uint32_t d = 0; d < CPU_DIRECTIONS; d++)
        cpu_prim_close(&product->converts[d]);
}

/* Makes the primitive of `pd` with its arguments; destroys `pd`. */
static enum status make_prim(struct cpu *cpu, struct cpu_layer *layer, struct cpu_prim *prim,
                             enum cpu_direction direction, dnnl_primitive_desc_t pd,
                             struct err *err)
{
    dnnl_memory_desc_t mds[MEMORIES] = {0};
    enum status status;

    for (uint32_t k = 0; k < MEMORIES; k++) {
        const struct argument *argument = &arguments[direction][k];
        const dnnl_memory_desc_t *md =
            argument->arg != 0 ? dnnl_primitive_desc_query_md(pd, argument->query, argument->index)
                               : NULL;

        if (md != NULL)
            mds[k] = *md;
    }
    status = cpu_prim_make(cpu, layer, prim, pd, err);
    for (uint32_t k = 0; k < MEMORIES && status == STATUS_OK; k++)
        if (mds[k].ndims > 0)
            status =
                cpu_prim_arg(cpu, layer, prim, arguments[direction][k].arg, &mds[k], NULL, err);
    return status;
}

static enum status make_set(struct cpu *cpu, struct cpu_layer *layer, struct cpu_product *product,
                            struct cpu_product_set *set, uint32_t n, struct err *err)
{
    dnnl_primitive_desc_t hint = NULL;
    enum status status = STATUS_OK;

    for (uint32_t d = 0; d < CPU_DIRECTIONS && status == STATUS_OK; d++) {
        dnnl_primitive_desc_t pd = NULL;

        if (!runs(cpu, layer, d))
            continue;
        status = cpu_check(product->describe(cpu, layer, n, d, &product->weights_mds[d], hint, &pd),
                           layer, direction_names[d], err);
        if (status == STATUS_OK && d == CPU_DIRECTION_FORWARD)
            status =
                cpu_check(dnnl_primitive_desc_clone(&hint, pd), layer, direction_names[d], err);
        if (status == STATUS_OK)
            status = make_prim(cpu, layer, &set->prims[d], d, pd, err);
        else if (pd != NULL)
            (void)dnnl_primitive_desc_destroy(pd);
    }
    if (hint != NULL)
        (void)dnnl_primitive_desc_destroy(hint);
    if (status == STATUS_OK)
        set->n = n;
    else
        close_set(set);
    return status;
}

enum status cpu_product_find(struct cpu *cpu, struct cpu_layer *layer, struct cpu_product *product,
                             uint32_t n, struct cpu_product_set **set, struct err *err)
{
    assert(n > 0 && n <= cpu->batch_max);
    for (uint32_t i = 0; i < CPU_PRODUCT_SETS_MAX; i++) {
        *set = &product->sets[i];
        if ((*set)->n == n)
            return STATUS_OK;
    }
    *set = &product->sets[product->set_next];
    product->set_next = (product->set_next + 1) % CPU_PRODUCT_SETS_MAX;
    close_set(*set);
    return make_set(cpu, layer, product, *set, n, err);
}

dnnl_status_t cpu_product_describe(const struct cpu *cpu, enum cpu_direction direction,
                                   const dnnl_memory_desc_t *in, const dnnl_memory_desc_t *weights,
                                   const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *out,
                                   const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd)
{
    dnnl_inner_product_desc_t desc;
    dnnl_status_t rc;

    assert((direction == CPU_DIRECTION_FORWARD) == (hint == NULL));
    if (direction == CPU_DIRECTION_FORWARD)
        rc = dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, in, weights, bias,
                                                  out);
    else if (direction == CPU_DIRECTION_DATA)
        rc = dnnl_inner_product_backward_data_desc_init(&desc, in, weights, out);
    else
        rc = dnnl_inner_product_backward_weights_desc_init(&desc, in, weights, bias, out);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(pd, &desc, cpu->attr, cpu->engine, hint);
    return rc;
}

/* Runs a reorder of weights, which is made the first time. */
static enum status convert(struct cpu *cpu, struct cpu_layer *layer, struct cpu_prim *prim,
                           const dnnl_memory_desc_t *from_md, const float *from,
                           const dnnl_memory_desc_t *to_md, float *to, struct err *err)
{
    if (prim->prim == NULL) {
        enum status status = cpu_reorder_make(cpu, layer, prim, from_md, from, to_md, to, err);

        if (status != STATUS_OK)
            return status;
    }
    return cpu_prim_run(cpu, layer, prim, err);
}

enum status cpu_product_convert(struct cpu *cpu, struct cpu_layer *layer,
                                struct cpu_product *product, enum cpu_direction direction,
                                struct err *err)
{
    const struct cpu_tensor *tensor = &layer->tensors[0];
    const dnnl_memory_desc_t *md = &product->weights_mds[direction];
    struct cpu_prim *prim = &product->converts[direction];
    float *copy = product->copies[direction];

    if (copy == NULL)
        return STATUS_OK;
    if (direction == CPU_DIRECTION_WEIGHTS)
        return convert(cpu, layer, prim, md, copy, &tensor->stored, tensor->grad, err);
    return convert(cpu, layer, prim, &tensor->stored, tensor->param, md, copy, err);
}

float *cpu_product_weights(const struct cpu_layer *layer, const struct cpu_product *product,
                           enum cpu_direction direction)
{
    if (product->copies[direction] != NULL)
        return product->copies[direction];
    return direction == CPU_DIRECTION_WEIGHTS ? layer->tensors[0].grad : layer->tensors[0].param;
}

enum status cpu_product_run(struct cpu *cpu, const struct cpu_layer *layer,
                            struct cpu_product_set *set, enum cpu_direction direction,
                            const struct cpu_product_memory *memory, struct err *err)
{
    const void *const places[MEMORIES] = {memory->in, memory->weights, memory->bias, memory->out};
    struct cpu_prim *prim = &set->prims[direction];

    assert(set->n > 0);
    for (uint32_t k = 0; k < MEMORIES; k++)
        if (arguments[direction][k].arg != 0)
            cpu_prim_point(prim, arguments[direction][k].arg, places[k]);
    return cpu_prim_run(cpu, layer, prim, err);
}
