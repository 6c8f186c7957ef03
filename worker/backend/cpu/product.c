/* Primitives and weights of convolution and linear layers. See product.h. */
#include "worker/backend/cpu/product.h"

#include <assert.h>
#include <string.h>

/* Whether this net ever runs a direction of this layer. */
static bool runs(const struct cpu *cpu, const struct cpu_layer *layer, enum cpu_direction direction)
{
    if (direction == CPU_DIRECTION_FORWARD)
        return true;
    return !cpu->evaluate_only && (direction == CPU_DIRECTION_WEIGHTS || layer->in->needs_grad);
}

/* How oneDNN would run a direction.
 *   forward: layout of the weights in forward, which oneDNN needs for backward too */
static enum status describe(const struct cpu *cpu, const struct cpu_operation *operation,
                            enum cpu_direction direction, const struct cpu_layout *forward,
                            const struct cpu_layout *weights, struct cpu_descriptor **made,
                            struct err *err)
{
    struct cpu_descriptor *hint = NULL;
    enum status status = STATUS_OK;

    *made = NULL;
    if (direction != CPU_DIRECTION_FORWARD)
        status = cpu_descriptor_new(&hint, cpu->dnnl, operation, CPU_DIRECTION_FORWARD, forward,
                                    NULL, err);
    if (status == STATUS_OK)
        status = cpu_descriptor_new(made, cpu->dnnl, operation, direction, weights, hint, err);
    cpu_descriptor_free(&hint);
    return status;
}

/* Describes a direction and keeps the layout that oneDNN chose for the weights. */
static enum status choose(const struct cpu *cpu, const struct cpu_layer *layer,
                          struct cpu_product *product, uint32_t n, enum cpu_direction direction,
                          const struct cpu_layout *read, const struct cpu_layout *written,
                          struct err *err)
{
    const struct cpu_operation operation = product->describe(cpu, layer, n, direction);
    const bool writes = direction == CPU_DIRECTION_WEIGHTS;
    struct cpu_descriptor *made;
    enum status status =
        describe(cpu, &operation, direction, read, writes ? written : read, &made, err);

    if (status == STATUS_OK && operation.in.type == CPU_BF16 && !cpu_descriptor_is_bf16(made))
        status = err_set(err, STATUS_UNSUPPORTED, 0,
                         "layer %s: oneDNN has no fast bf16 for its shape", operation.layer);
    if (status == STATUS_OK)
        status = cpu_descriptor_weights(&product->weights[direction], made, err);
    product->is_general[direction] =
        status == STATUS_OK && runs(cpu, layer, direction) && cpu_descriptor_is_general(made);
    cpu_descriptor_free(&made);
    return status;
}

static enum status choose_all(const struct cpu *cpu, const struct cpu_layer *layer,
                              struct cpu_product *product, uint32_t n,
                              const struct cpu_layout *read, const struct cpu_layout *written,
                              struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t d = 0; d < CPU_DIRECTIONS && status == STATUS_OK; d++)
        if (d != CPU_DIRECTION_DATA || layer->in->needs_grad)
            status = choose(cpu, layer, product, n, d, read, written, err);
    return status;
}

enum status cpu_product_choose(const struct cpu *cpu, const struct cpu_layer *layer,
                               struct cpu_product *product, cpu_describe describes, uint32_t n,
                               const struct cpu_shape *plain, enum cpu_type type, struct err *err)
{
    const char *name = layer->graph->name;
    struct cpu_shape shape = *plain;
    struct cpu_layout *read = NULL, *written = NULL;
    enum status status;

    product->describe = describes;
    shape.order = CPU_ORDER_ANY;
    status = cpu_layout_new(&written, &shape, name, err);
    shape.type = type;
    if (status == STATUS_OK)
        status = cpu_layout_new(&read, &shape, name, err);
    if (status == STATUS_OK)
        status = choose_all(cpu, layer, product, n, read, written, err);
    cpu_layout_free(&read);
    cpu_layout_free(&written);
    if (status != STATUS_OK)
        cpu_product_close(product);
    return status;
}

enum status cpu_product_set(const struct cpu_layer *layer, struct cpu_product *product,
                            cpu_describe describes, const struct cpu_shape *weights,
                            struct err *err)
{
    enum status status = STATUS_OK;

    product->describe = describes;
    for (uint32_t d = 0; d < CPU_DIRECTIONS && status == STATUS_OK; d++)
        status = cpu_layout_new(&product->weights[d], weights, layer->graph->name, err);
    return status;
}

enum status cpu_product_request(struct cpu *cpu, struct cpu_layer *layer,
                                struct cpu_product *product, struct err *err)
{
    const uint32_t now = (uint32_t)(layer - cpu->layers);
    enum status status = STATUS_OK;

    for (uint32_t d = 0; d < CPU_DIRECTIONS && status == STATUS_OK; d++) {
        const struct cpu_layout *weights = product->weights[d];
        size_t bytes;

        if (!runs(cpu, layer, d) || cpu_layout_equal(weights, product->stored))
            continue;
        bytes = cpu_layout_bytes(weights);
        status = d == CPU_DIRECTION_FORWARD
                     ? cpu_request(cpu, layer, &product->copies[d], bytes, now, now, err)
                     : cpu_request_in_backward(cpu, layer, &product->copies[d], bytes, err);
    }
    return status;
}

enum status cpu_product_store(struct cpu_layer *layer, struct cpu_product *product,
                              const struct cpu_shape *shape, const struct cpu_shape *wide,
                              const struct cpu_layout *stored, const struct cpu_layout *seen,
                              struct err *err)
{
    enum status status = cpu_weights_set_layout(layer, shape, wide, stored, err);

    assert(cpu_layout_bytes(stored) == cpu_layout_bytes(seen));
    cpu_layout_free(&product->stored);
    if (status == STATUS_OK)
        status = cpu_layout_copy(&product->stored, seen, layer->graph->name, err);
    return status;
}

static void close_set(struct cpu_product_set *set)
{
    for (uint32_t d = 0; d < CPU_DIRECTIONS; d++)
        cpu_prim_free(&set->prims[d]);
    set->n = 0;
}

void cpu_product_close(struct cpu_product *product)
{
    for (uint32_t i = 0; i < CPU_PRODUCT_SETS_MAX; i++)
        close_set(&product->sets[i]);
    for (uint32_t d = 0; d < CPU_DIRECTIONS; d++) {
        cpu_prim_free(&product->converts[d]);
        cpu_layout_free(&product->weights[d]);
    }
    cpu_layout_free(&product->stored);
}

static enum status make_set(struct cpu *cpu, struct cpu_layer *layer, struct cpu_product *product,
                            struct cpu_product_set *set, uint32_t n, struct err *err)
{
    const struct cpu_layout *forward = product->weights[CPU_DIRECTION_FORWARD];
    enum status status = STATUS_OK;

    for (uint32_t d = 0; d < CPU_DIRECTIONS && status == STATUS_OK; d++) {
        struct cpu_operation operation;
        struct cpu_descriptor *descriptor;

        if (!runs(cpu, layer, d))
            continue;
        operation = product->describe(cpu, layer, n, d);
        status = describe(cpu, &operation, d, forward, product->weights[d], &descriptor, err);
        if (status == STATUS_OK)
            status = cpu_prim_new(&set->prims[d], cpu->dnnl, descriptor, err);
        cpu_descriptor_free(&descriptor);
    }
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

/* Runs a conversion of weights; creates its primitive the first time. */
static enum status convert(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_prim **prim,
                           const struct cpu_layout *from_layout, const float *from,
                           const struct cpu_layout *to_layout, float *to, struct err *err)
{
    const void *const memory[CPU_MEMORIES] = {[CPU_IN] = from, [CPU_OUT] = to};
    enum status status = STATUS_OK;

    if (*prim == NULL)
        status =
            cpu_prim_new_convert(prim, cpu->dnnl, from_layout, to_layout, layer->graph->name, err);
    return status == STATUS_OK ? cpu_prim_run(cpu->dnnl, *prim, memory, err) : status;
}

enum status cpu_product_convert(struct cpu *cpu, struct cpu_layer *layer,
                                struct cpu_product *product, enum cpu_direction direction,
                                struct err *err)
{
    const struct cpu_tensor *tensor = &layer->tensors[0];
    const struct cpu_layout *layout = product->weights[direction];
    struct cpu_prim **prim = &product->converts[direction];
    float *copy = product->copies[direction];

    if (copy == NULL)
        return STATUS_OK;
    if (direction == CPU_DIRECTION_WEIGHTS)
        return convert(cpu, layer, prim, layout, copy, product->stored, tensor->grad, err);
    return convert(cpu, layer, prim, product->stored, tensor->param, layout, copy, err);
}

float *cpu_product_weights(const struct cpu_layer *layer, const struct cpu_product *product,
                           enum cpu_direction direction)
{
    if (product->copies[direction] != NULL)
        return product->copies[direction];
    return direction == CPU_DIRECTION_WEIGHTS ? layer->tensors[0].grad : layer->tensors[0].param;
}

enum status cpu_product_run(const struct cpu *cpu, const struct cpu_product_set *set,
                            enum cpu_direction direction, const struct cpu_product_memory *memory,
                            struct err *err)
{
    const void *const places[CPU_MEMORIES] = {[CPU_IN] = memory->in,
                                              [CPU_WEIGHTS] = memory->weights,
                                              [CPU_BIAS] = memory->bias,
                                              [CPU_OUT] = memory->out};

    assert(set->n > 0 && set->prims[direction] != NULL);
    return cpu_prim_run(cpu->dnnl, set->prims[direction], places, err);
}
