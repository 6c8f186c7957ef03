/* The memory plan: which buffers a network needs, when each is in use, and which share memory.
 *
 * Shared in addition to the plan (worker/net/memory_plan.h):
 * - A flatten is a view: its value and gradient are those of its input.
 * - If a batch norm is the only reader of a convolution, the gradient of the convolution's output
 *   overwrites that output.
 * - The gradient of a residual's skip input takes over the memory of the gradient of the sum, if
 *   the addition is the first layer in backward that writes it. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <stdlib.h>

#include "worker/net/memory_plan.h"

/* Flattens are views. */
static bool is_view(const void *cpu, uint32_t layer)
{
    return ((const struct cpu *)cpu)->graph->layers[layer].op == GRAPH_FLATTEN;
}

static struct memory_values values_of(const struct cpu *cpu)
{
    return (struct memory_values){cpu->graph, is_view, cpu};
}

/* The last time at which backward reads the layer's value and gradient. A batch norm computes its
 * dx during the backward of the convolution before it. */
static uint32_t backward_end(const struct cpu *cpu, uint32_t layer)
{
    const struct cpu_layer *conv = cpu->layers[layer].conv;

    return memory_backward_time(cpu->graph, conv != NULL ? (uint32_t)(conv - cpu->layers) : layer);
}

/* Whether backward of `layer` reads the layer's input, or the output. */
static bool backward_reads_input(const struct graph_layer *layer)
{
    return layer->op == GRAPH_CONV2D || layer->op == GRAPH_LINEAR || layer->op == GRAPH_BATCH_NORM;
}

static bool backward_reads_output(const struct graph_layer *layer)
{
    return layer->op == GRAPH_RELU || layer->op == GRAPH_CROSS_ENTROPY || layer->fused_relu;
}

static uint32_t last_use(const struct cpu *cpu, uint32_t index)
{
    const struct graph_layer *layers = cpu->graph->layers;
    const bool trains = !cpu->evaluate_only;
    uint32_t last = index;

    for (uint32_t user = index + 1; user < cpu->graph->layer_count; user++) {
        if (!memory_reads(values_of(cpu), user, 0, index) &&
            !memory_reads(values_of(cpu), user, 1, index))
            continue;
        last = memory_later(last, user);
        if (trains && backward_reads_input(&layers[user]) &&
            memory_reads(values_of(cpu), user, 0, index))
            last = memory_later(last, memory_backward_time(cpu->graph, user));
    }
    if (trains && (backward_reads_output(&layers[index]) || cpu->layers[index].norm != NULL))
        last = memory_later(last, backward_end(cpu, index));
    if (trains && layers[index].op == GRAPH_INPUT) /* cpu_first_nonfinite runs forward again */
        last = memory_later(last, memory_backward_time(cpu->graph, index));
    return last;
}

enum status cpu_request(struct cpu *cpu, const struct cpu_layer *layer, float **at, size_t bytes,
                        uint32_t birth, uint32_t death, struct err *err)
{
    struct cpu_request *requests;

    assert(birth <= death && death < 2 * cpu->graph->layer_count && cpu->arena == NULL);
    if (cpu->request_count % 64 == 0) {
        requests = realloc(cpu->requests, (cpu->request_count + 64) * sizeof *requests);
        if (requests == NULL)
            return cpu_out_of_memory(layer, err);
        cpu->requests = requests;
    }
    cpu->requests[cpu->request_count++] = (struct cpu_request){at, bytes, birth, death};
    return STATUS_OK;
}

enum status cpu_request_in_backward(struct cpu *cpu, const struct cpu_layer *layer, float **at,
                                    size_t bytes, struct err *err)
{
    const uint32_t time = memory_backward_time(cpu->graph, (uint32_t)(layer - cpu->layers));

    return cpu_request(cpu, layer, at, bytes, time, time, err);
}

static size_t value_bytes(const struct cpu *cpu, uint32_t index)
{
    return cpu_value_bytes(&cpu->layers[index].out, cpu->batch_max);
}

/* Whether the gradient of `index` can use the memory of the gradient of the sum that `user`
 * computes: true if no layer writes to it before `user` has finished reading it. */
static bool takes_over(const struct cpu *cpu, uint32_t user, uint32_t index)
{
    const struct graph_layer *layer = &cpu->graph->layers[user];

    return (layer->fused_add || layer->op == GRAPH_ADD) && layer->inputs[1] == index &&
           !memory_reads(values_of(cpu), user, 0, index) &&
           backward_end(cpu, user) <= memory_backward_time(cpu->graph, user) + 1;
}

static enum status request_gradient(struct cpu *cpu, uint32_t index, struct err *err)
{
    struct cpu_layer *layer = &cpu->layers[index];
    const uint32_t user = memory_last_user(values_of(cpu), index), death = backward_end(cpu, index);

    if (!layer->out.needs_grad || user == GRAPH_NONE)
        return STATUS_OK;
    if (layer->norm != NULL) {
        layer->grad_is_value = true;
        return STATUS_OK;
    }
    if (takes_over(cpu, user, index)) {
        layer->grad_of = cpu->layers[user].grad_of; /* the sum's own, or that of a later sum */
        cpu->requests[layer->grad_of].death =
            memory_later(cpu->requests[layer->grad_of].death, death);
        return STATUS_OK;
    }
    layer->grad_of = cpu->request_count;
    return cpu_request(cpu, layer, &layer->out.grad, value_bytes(cpu, index),
                       memory_backward_time(cpu->graph, user), death, err);
}

/* Sets layer->adds: inputs whose gradient another layer writes earlier in backward. Requests a
 * buffer for this layer's share if its operation cannot add directly. */
static enum status request_spare(struct cpu *cpu, uint32_t index, struct err *err)
{
    struct cpu_layer *layer = &cpu->layers[index];
    const struct graph_layer *graph = layer->graph;

    for (uint32_t k = 0; k < 2; k++) {
        uint32_t root;

        if (graph->inputs[k] == GRAPH_NONE || graph->op == GRAPH_FLATTEN)
            continue;
        root = memory_root(values_of(cpu), graph->inputs[k]);
        layer->adds[k] = memory_last_user(values_of(cpu), root) != index ||
                         (k == 1 && memory_reads(values_of(cpu), index, 0, root));
    }
    if (!layer->adds[0] || !layer->in->needs_grad || graph->op == GRAPH_CONV2D ||
        graph->op == GRAPH_ADD)
        return STATUS_OK; /* conv.c and add.c add directly */
    return cpu_request_in_backward(cpu, layer, &layer->spare,
                                   cpu_value_bytes(layer->in, cpu->batch_max), err);
}

static enum status request_values(struct cpu *cpu, struct err *err)
{
    const uint32_t count = cpu->graph->layer_count;
    enum status status = STATUS_OK;

    for (uint32_t i = 0; i < count && status == STATUS_OK; i++)
        if (memory_root(values_of(cpu), i) == i)
            status = cpu_request(cpu, &cpu->layers[i], &cpu->layers[i].out.data,
                                 value_bytes(cpu, i), i, last_use(cpu, i), err);
    for (uint32_t i = count; i-- > 0 && status == STATUS_OK && !cpu->evaluate_only;)
        if (memory_root(values_of(cpu), i) == i)
            status = request_gradient(cpu, i, err);
    for (uint32_t i = 0; i < count && status == STATUS_OK && !cpu->evaluate_only; i++)
        status = request_spare(cpu, i, err);
    return status;
}

/* Sets the pointers of gradients that share memory, and of views. */
static void share_memory(struct cpu *cpu)
{
    for (uint32_t i = 0; i < cpu->graph->layer_count; i++) {
        struct cpu_layer *layer = &cpu->layers[i];

        assert(layer->grad_of == GRAPH_NONE || layer->grad_of < cpu->request_count);
        if (layer->grad_is_value)
            layer->out.grad = layer->out.data;
        else if (layer->grad_of != GRAPH_NONE)
            layer->out.grad = *cpu->requests[layer->grad_of].at;
        if (layer->graph->op == GRAPH_FLATTEN) {
            layer->out.data = layer->in->data;
            layer->out.grad = layer->in->grad;
        }
    }
}

enum status cpu_memory_make(struct cpu *cpu, struct err *err)
{
    enum status status = request_values(cpu, err);
    struct memory_plan_item *items;
    uint32_t *scratch;

    if (status != STATUS_OK)
        return status;
    items = calloc((size_t)cpu->request_count + 1, sizeof *items);
    scratch = calloc((size_t)cpu->request_count + 1, 2 * sizeof *scratch);
    for (uint32_t i = 0; i < cpu->request_count && items != NULL; i++)
        items[i] = (struct memory_plan_item){.bytes = cpu->requests[i].bytes,
                                             .birth = cpu->requests[i].birth,
                                             .death = cpu->requests[i].death};
    if (items != NULL && scratch != NULL)
        cpu->arena = cpu_alloc(cpu, memory_plan(items, cpu->request_count, scratch));
    for (uint32_t i = 0; i < cpu->request_count && items != NULL && cpu->arena != NULL; i++)
        *cpu->requests[i].at = (float *)(void *)((char *)cpu->arena + items[i].offset);
    if (cpu->arena != NULL)
        share_memory(cpu);
    free(items);
    free(scratch);
    return cpu->arena != NULL ? STATUS_OK : cpu_out_of_memory(NULL, err);
}
