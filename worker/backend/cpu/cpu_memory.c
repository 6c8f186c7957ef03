/* Which buffers a network needs, how long each lives, and who may share one.
 *
 * A flatten is a view: its value is its input's. A convolution's gradient takes the place of its
 * value where a batch norm alone reads it. The gradient of what a residual adds takes over the
 * gradient of the sum, in place, where the addition is the first in backward to write it. */
#include "worker/backend/cpu/cpu.h"

#include <assert.h>
#include <stdlib.h>

#include "worker/backend/cpu/cpu_plan.h"

/* The layer whose memory `index` shows. */
static uint32_t root_of(const struct cpu *cpu, uint32_t index)
{
    while (cpu->graph->layers[index].op == GRAPH_FLATTEN)
        index = cpu->graph->layers[index].inputs[0];
    return index;
}

static bool reads(const struct cpu *cpu, uint32_t user, uint32_t input, uint32_t root)
{
    const struct graph_layer *layer = &cpu->graph->layers[user];

    return layer->op != GRAPH_FLATTEN && layer->inputs[input] != GRAPH_NONE &&
           root_of(cpu, layer->inputs[input]) == root;
}

static uint32_t backward_time(const struct cpu *cpu, uint32_t layer)
{
    return 2 * cpu->graph->layer_count - 1 - layer;
}

/* When backward has done with the layer's value and gradient: a batch norm makes its dx during the
 * backward of the convolution before it. */
static uint32_t backward_end(const struct cpu *cpu, uint32_t layer)
{
    const struct cpu_layer *conv = cpu->layers[layer].conv;

    return backward_time(cpu, conv != NULL ? (uint32_t)(conv - cpu->layers) : layer);
}

/* Whether backward of `layer` looks at what the layer read, or made. */
static bool backward_reads_input(const struct graph_layer *layer)
{
    return layer->op == GRAPH_CONV2D || layer->op == GRAPH_LINEAR || layer->op == GRAPH_BATCH_NORM;
}

static bool backward_reads_output(const struct graph_layer *layer)
{
    return layer->op == GRAPH_RELU || layer->op == GRAPH_CROSS_ENTROPY || layer->fused_relu;
}

static uint32_t later(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t last_use(const struct cpu *cpu, uint32_t index)
{
    const struct graph_layer *layers = cpu->graph->layers;
    const bool trains = !cpu->evaluate_only;
    uint32_t last = index;

    for (uint32_t user = index + 1; user < cpu->graph->layer_count; user++) {
        if (!reads(cpu, user, 0, index) && !reads(cpu, user, 1, index))
            continue;
        last = later(last, user);
        if (trains && backward_reads_input(&layers[user]) && reads(cpu, user, 0, index))
            last = later(last, backward_time(cpu, user));
    }
    if (trains && (backward_reads_output(&layers[index]) || cpu->layers[index].norm != NULL))
        last = later(last, backward_end(cpu, index));
    if (trains && layers[index].op == GRAPH_INPUT) /* cpu_first_nonfinite goes forward again */
        last = later(last, backward_time(cpu, index));
    return last;
}

enum status cpu_want(struct cpu *cpu, const struct cpu_layer *layer, float **at, size_t bytes,
                     uint32_t birth, uint32_t death, struct err *err)
{
    struct cpu_want *wants;

    if (cpu->want_count % 64 == 0) {
        wants = realloc(cpu->wants, (cpu->want_count + 64) * sizeof *wants);
        if (wants == NULL)
            return cpu_out_of_memory(layer, err);
        cpu->wants = wants;
    }
    cpu->wants[cpu->want_count++] = (struct cpu_want){at, bytes, birth, death};
    return STATUS_OK;
}

enum status cpu_want_in_backward(struct cpu *cpu, const struct cpu_layer *layer, float **at,
                                 size_t bytes, struct err *err)
{
    const uint32_t time = backward_time(cpu, (uint32_t)(layer - cpu->layers));

    return cpu_want(cpu, layer, at, bytes, time, time, err);
}

static size_t value_bytes(const struct cpu *cpu, uint32_t index)
{
    return cpu->layers[index].out.image_size * cpu->batch_max * sizeof(float);
}

/* The last layer that reads the value: backward writes its gradient there first. */
static uint32_t last_user(const struct cpu *cpu, uint32_t index)
{
    uint32_t last = GRAPH_NONE;

    for (uint32_t user = index + 1; user < cpu->graph->layer_count; user++)
        if (reads(cpu, user, 0, index) || reads(cpu, user, 1, index))
            last = user;
    return last;
}

/* Whether `index` can have the gradient of the sum that `user` makes: nobody writes there before
 * `user` has read it to the end. */
static bool takes_over(const struct cpu *cpu, uint32_t user, uint32_t index)
{
    const struct graph_layer *layer = &cpu->graph->layers[user];

    return (layer->fused_add || layer->op == GRAPH_ADD) && layer->inputs[1] == index &&
           !reads(cpu, user, 0, index) && backward_end(cpu, user) <= backward_time(cpu, user) + 1;
}

static enum status want_gradient(struct cpu *cpu, uint32_t index, struct err *err)
{
    struct cpu_layer *layer = &cpu->layers[index];
    const uint32_t user = last_user(cpu, index), death = backward_end(cpu, index);

    if (!layer->out.needs_grad || user == GRAPH_NONE)
        return STATUS_OK;
    if (layer->norm != NULL) {
        layer->grad_is_value = true;
        return STATUS_OK;
    }
    if (takes_over(cpu, user, index)) {
        layer->grad_of = cpu->layers[user].grad_of; /* its own want, or one of a sum behind it */
        cpu->wants[layer->grad_of].death = later(cpu->wants[layer->grad_of].death, death);
        return STATUS_OK;
    }
    layer->grad_of = cpu->want_count;
    return cpu_want(cpu, layer, &layer->out.grad, value_bytes(cpu, index), backward_time(cpu, user),
                    death, err);
}

/* Where somebody has written the gradient before, this layer adds to it. */
static enum status want_spare(struct cpu *cpu, uint32_t index, struct err *err)
{
    struct cpu_layer *layer = &cpu->layers[index];
    const struct graph_layer *graph = layer->graph;

    for (uint32_t k = 0; k < 2; k++) {
        uint32_t root;

        if (graph->inputs[k] == GRAPH_NONE || graph->op == GRAPH_FLATTEN)
            continue;
        root = root_of(cpu, graph->inputs[k]);
        layer->adds[k] = last_user(cpu, root) != index || (k == 1 && reads(cpu, index, 0, root));
    }
    if (!layer->adds[0] || !layer->in->needs_grad || graph->op == GRAPH_CONV2D ||
        graph->op == GRAPH_ADD)
        return STATUS_OK; /* these add by themselves */
    return cpu_want_in_backward(cpu, layer, &layer->spare,
                                layer->in->image_size * cpu->batch_max * sizeof(float), err);
}

static enum status want_values(struct cpu *cpu, struct err *err)
{
    const uint32_t count = cpu->graph->layer_count;
    enum status status = STATUS_OK;

    for (uint32_t i = 0; i < count && status == STATUS_OK; i++)
        if (root_of(cpu, i) == i)
            status = cpu_want(cpu, &cpu->layers[i], &cpu->layers[i].out.data, value_bytes(cpu, i),
                              i, last_use(cpu, i), err);
    for (uint32_t i = count; i-- > 0 && status == STATUS_OK && !cpu->evaluate_only;)
        if (root_of(cpu, i) == i)
            status = want_gradient(cpu, i, err);
    for (uint32_t i = 0; i < count && status == STATUS_OK && !cpu->evaluate_only; i++)
        status = want_spare(cpu, i, err);
    return status;
}

/* Gradients that are somebody else's memory, and views. */
static void share_memory(struct cpu *cpu)
{
    for (uint32_t i = 0; i < cpu->graph->layer_count; i++) {
        struct cpu_layer *layer = &cpu->layers[i];

        if (layer->grad_is_value)
            layer->out.grad = layer->out.data;
        else if (layer->grad_of != GRAPH_NONE)
            layer->out.grad = *cpu->wants[layer->grad_of].at;
        if (layer->graph->op == GRAPH_FLATTEN) {
            layer->out.data = layer->in->data;
            layer->out.grad = layer->in->grad;
        }
    }
}

enum status cpu_memory_make(struct cpu *cpu, struct err *err)
{
    enum status status = want_values(cpu, err);
    struct cpu_plan_item *items;
    uint32_t *scratch;

    if (status != STATUS_OK)
        return status;
    items = calloc((size_t)cpu->want_count + 1, sizeof *items);
    scratch = calloc((size_t)cpu->want_count + 1, 2 * sizeof *scratch);
    for (uint32_t i = 0; i < cpu->want_count && items != NULL; i++)
        items[i] = (struct cpu_plan_item){.bytes = cpu->wants[i].bytes,
                                          .birth = cpu->wants[i].birth,
                                          .death = cpu->wants[i].death};
    if (items != NULL && scratch != NULL)
        cpu->arena = cpu_alloc(cpu, cpu_plan(items, cpu->want_count, scratch));
    for (uint32_t i = 0; i < cpu->want_count && items != NULL && cpu->arena != NULL; i++)
        *cpu->wants[i].at = (float *)(void *)((char *)cpu->arena + items[i].offset);
    if (cpu->arena != NULL)
        share_memory(cpu);
    free(items);
    free(scratch);
    return cpu->arena != NULL ? STATUS_OK : cpu_out_of_memory(NULL, err);
}
