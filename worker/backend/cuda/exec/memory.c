/* Which buffers a network needs on the device, how long each is in use, and one arena for all.
 *
 * Views (a flatten; a cast of the images, which are written in that type) share their input's
 * memory. Times are those of net/memory_plan.h: i for forward of layer i, 2 * layers - 1 - i for
 * its backward. */
#include <assert.h>
#include <stdlib.h>

#include "worker/net/memory_plan.h"
#include "worker/backend/cuda/exec/internal.h"

static bool is_view(const void *cuda, uint32_t layer)
{
    return ((const struct cuda *)cuda)->layers[layer].is_view;
}

static struct memory_values values_of(const struct cuda *cuda)
{
    return (struct memory_values){cuda->graph, is_view, cuda};
}

/* Whether backward reads the layer's input, or its output. */
static bool backward_reads_input(const struct graph_layer *layer)
{
    return layer->op == GRAPH_CONV2D || layer->op == GRAPH_LINEAR ||
           layer->op == GRAPH_BATCH_NORM || layer->op == GRAPH_CROSS_ENTROPY;
}

static bool backward_reads_output(const struct cuda_layer *layer)
{
    return layer->graph->op == GRAPH_RELU ||
           (layer->graph->fused_relu && !layer->graph->fused_pool && !layer->uses_plans);
}

/* The images stay valid to the end: cuda_first_nonfinite runs forward again. */
static uint32_t last_use(const struct cuda *cuda, uint32_t index)
{
    const bool trains = !cuda->evaluate_only;
    uint32_t last = index;

    for (uint32_t user = index + 1; user < cuda->graph->layer_count; user++) {
        if (!memory_reads(values_of(cuda), user, 0, index) &&
            !memory_reads(values_of(cuda), user, 1, index))
            continue;
        last = memory_later(last, user);
        if (trains && backward_reads_input(&cuda->graph->layers[user]))
            last = memory_later(last, memory_backward_time(cuda->graph, user));
    }
    if (trains && (backward_reads_output(&cuda->layers[index]) || index == 0))
        last = memory_later(last, memory_backward_time(cuda->graph, index));
    return last;
}

enum status cuda_request(struct cuda *cuda, const struct cuda_layer *layer, void **at, size_t bytes,
                         uint32_t birth, uint32_t death, struct err *err)
{
    struct cuda_request *requests;

    if (cuda->request_count % 64 == 0) {
        requests = realloc(cuda->requests, (cuda->request_count + 64) * sizeof *requests);
        if (requests == NULL)
            return cuda_out_of_memory(layer, err);
        cuda->requests = requests;
    }
    assert(birth <= death && death < 2 * cuda->graph->layer_count && cuda->arena == NULL);
    cuda->requests[cuda->request_count++] = (struct cuda_request){at, bytes, birth, death};
    return STATUS_OK;
}

enum status cuda_request_until_backward(struct cuda *cuda, struct cuda_layer *layer, void **at,
                                        size_t bytes, struct err *err)
{
    uint32_t end =
        cuda->evaluate_only ? layer->index : memory_backward_time(cuda->graph, layer->index);

    return cuda_request(cuda, layer, at, bytes, layer->index, end, err);
}

enum status cuda_request_in_backward(struct cuda *cuda, struct cuda_layer *layer, void **at,
                                     size_t bytes, struct err *err)
{
    uint32_t time = memory_backward_time(cuda->graph, layer->index);

    return cuda->evaluate_only ? STATUS_OK : cuda_request(cuda, layer, at, bytes, time, time, err);
}

size_t cuda_value_bytes(const struct cuda *cuda, const struct cuda_value *value)
{
    return value->image_size * cuda->batch_max * graph_dtype_bytes(value->dtype);
}

uint32_t cuda_grad_death(const struct cuda *cuda, const struct cuda_layer *layer)
{
    const struct cuda_layer *const others[] = {layer->gives_to, layer->masks_for};
    uint32_t last = memory_backward_time(cuda->graph, layer->index);

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i] != NULL)
            last = memory_later(last, memory_backward_time(cuda->graph, others[i]->index));
    return last;
}

static enum status request_values(struct cuda *cuda, uint32_t index, struct err *err)
{
    struct cuda_layer *layer = &cuda->layers[index];
    const size_t bytes = cuda_value_bytes(cuda, &layer->out);
    const uint32_t user = memory_last_user(values_of(cuda), index);
    enum status status;

    if (layer->is_view || layer->graph->op == GRAPH_CROSS_ENTROPY)
        return STATUS_OK; /* the loss is only sums, it has no value */
    status = cuda_request(cuda, layer, &layer->out.data, bytes, index, last_use(cuda, index), err);
    if (status != STATUS_OK || !layer->out.needs_grad || user == GRAPH_NONE ||
        layer->given_by != NULL)
        return status;
    return cuda_request(cuda, layer, &layer->out.grad, bytes,
                        memory_backward_time(cuda->graph, user), cuda_grad_death(cuda, layer), err);
}

/* If a value has several readers, the last one in forward order writes the gradient, the others add
 * to it. A value that is added to itself is read twice. */
static bool adds(const struct cuda *cuda, const struct cuda_layer *layer, uint32_t k)
{
    uint32_t root;

    if (layer->is_view || layer->in[k] == NULL || !layer->in[k]->needs_grad)
        return false;
    root = memory_root(values_of(cuda), layer->graph->inputs[k]);
    return memory_last_user(values_of(cuda), root) != layer->index ||
           (k == 1 && layer->in[0] != NULL &&
            memory_root(values_of(cuda), layer->graph->inputs[0]) == root);
}

void cuda_find_adds(struct cuda *cuda)
{
    for (uint32_t i = 0; i < cuda->graph->layer_count; i++)
        for (uint32_t k = 0; k < 2; k++)
            cuda->layers[i].adds[k] = adds(cuda, &cuda->layers[i], k);
}

/* Requested also for a layer whose plan adds the gradient: a later set may have no such plan. */
static enum status request_spares(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t k = 0; k < 2 && status == STATUS_OK; k++)
        if (layer->adds[k])
            status = cuda_request_in_backward(cuda, layer, &layer->spare[k],
                                              cuda_value_bytes(cuda, layer->in[k]), err);
    return status;
}

static enum status place(struct cuda *cuda, struct err *err)
{
    struct memory_plan_item *items = calloc((size_t)cuda->request_count + 1, sizeof *items);
    uint32_t *scratch = calloc(2 * (size_t)cuda->request_count + 1, sizeof *scratch);
    enum status status = STATUS_OK;
    size_t bytes;

    if (items == NULL || scratch == NULL) {
        free(items);
        free(scratch);
        return cuda_out_of_memory(NULL, err);
    }
    for (uint32_t i = 0; i < cuda->request_count; i++)
        items[i] = (struct memory_plan_item){cuda->requests[i].bytes, cuda->requests[i].birth,
                                             cuda->requests[i].death, 0};
    bytes = memory_plan(items, cuda->request_count, scratch);
    status = cuda->runtime->memory_new(&cuda->arena, bytes, err);
    if (status == STATUS_OK)
        cuda->bytes += bytes;
    for (uint32_t i = 0; i < cuda->request_count; i++)
        assert(items[i].offset + items[i].bytes <= bytes); /* inside the arena */
    for (uint32_t i = 0; status == STATUS_OK && i < cuda->request_count; i++)
        *cuda->requests[i].at = (char *)cuda->arena + items[i].offset;
    free(items);
    free(scratch);
    return status;
}

enum status cuda_memory_make(struct cuda *cuda, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; i < cuda->graph->layer_count && status == STATUS_OK; i++) {
        status = request_values(cuda, i, err);
        if (status == STATUS_OK)
            status = request_spares(cuda, &cuda->layers[i], err);
    }
    if (status == STATUS_OK)
        status = place(cuda, err);
    for (uint32_t i = 0; i < cuda->graph->layer_count && status == STATUS_OK; i++) {
        struct cuda_layer *layer = &cuda->layers[i];

        if (layer->is_view) {
            layer->out.data = layer->in[0]->data;
            layer->out.grad = layer->in[0]->grad;
        }
    }
    for (uint32_t i = 0; i < cuda->graph->layer_count && status == STATUS_OK; i++)
        for (uint32_t k = 0; k < 2; k++)
            if (cuda->layers[i].in[k] != NULL)
                cuda->layers[i].dx[k] = cuda->layers[i].adds[k] ? cuda->layers[i].spare[k]
                                                                : cuda->layers[i].in[k]->grad;
    return status;
}
