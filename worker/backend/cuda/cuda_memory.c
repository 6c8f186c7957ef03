/* Which buffers a network needs on the device, how long each lives, and one arena for all.
 *
 * Views (a flatten; a cast of the images, which are written in that type) share their input's
 * memory. Times are those of cpu_plan.h: forward of layer i is i, backward 2 * layers - 1 - i. */
#include <assert.h>
#include <stdlib.h>

#include "worker/backend/cpu/cpu_plan.h"
#include "worker/backend/cuda/cuda.h"

static uint32_t root_of(const struct cuda *cuda, uint32_t index)
{
    while (cuda->layers[index].is_view)
        index = cuda->graph->layers[index].inputs[0];
    return index;
}

static bool reads(const struct cuda *cuda, uint32_t user, uint32_t input, uint32_t root)
{
    const struct graph_layer *layer = &cuda->graph->layers[user];

    return !cuda->layers[user].is_view && layer->inputs[input] != GRAPH_NONE &&
           root_of(cuda, layer->inputs[input]) == root;
}

static uint32_t backward_time(const struct cuda *cuda, uint32_t layer)
{
    return 2 * cuda->graph->layer_count - 1 - layer;
}

static uint32_t later(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Whether backward looks at what the layer read; at what it made. */
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

/* The images stay: cuda_first_nonfinite goes forward again. */
static uint32_t last_use(const struct cuda *cuda, uint32_t index)
{
    const bool trains = !cuda->evaluate_only;
    uint32_t last = index;

    for (uint32_t user = index + 1; user < cuda->graph->layer_count; user++) {
        if (!reads(cuda, user, 0, index) && !reads(cuda, user, 1, index))
            continue;
        last = later(last, user);
        if (trains && backward_reads_input(&cuda->graph->layers[user]))
            last = later(last, backward_time(cuda, user));
    }
    if (trains && (backward_reads_output(&cuda->layers[index]) || index == 0))
        last = later(last, backward_time(cuda, index));
    return last;
}

enum status cuda_want(struct cuda *cuda, const struct cuda_layer *layer, void **at, size_t bytes,
                      uint32_t birth, uint32_t death, struct err *err)
{
    struct cuda_want *wants;

    if (cuda->want_count % 64 == 0) {
        wants = realloc(cuda->wants, (cuda->want_count + 64) * sizeof *wants);
        if (wants == NULL)
            return cuda_out_of_memory(layer, err);
        cuda->wants = wants;
    }
    cuda->wants[cuda->want_count++] = (struct cuda_want){at, bytes, birth, death};
    return STATUS_OK;
}

enum status cuda_want_until_backward(struct cuda *cuda, struct cuda_layer *layer, void **at,
                                     size_t bytes, struct err *err)
{
    uint32_t end = cuda->evaluate_only ? layer->index : backward_time(cuda, layer->index);

    return cuda_want(cuda, layer, at, bytes, layer->index, end, err);
}

enum status cuda_want_in_backward(struct cuda *cuda, struct cuda_layer *layer, void **at,
                                  size_t bytes, struct err *err)
{
    uint32_t time = backward_time(cuda, layer->index);

    return cuda->evaluate_only ? STATUS_OK : cuda_want(cuda, layer, at, bytes, time, time, err);
}

size_t cuda_value_bytes(const struct cuda *cuda, const struct cuda_value *value)
{
    return value->image_size * cuda->batch_max * graph_dtype_bytes(value->dtype);
}

/* The last layer that reads the value: backward writes its gradient there first. */
static uint32_t last_user(const struct cuda *cuda, uint32_t index)
{
    uint32_t last = GRAPH_NONE;

    for (uint32_t user = index + 1; user < cuda->graph->layer_count; user++)
        if (reads(cuda, user, 0, index) || reads(cuda, user, 1, index))
            last = user;
    return last;
}

static enum status want_values(struct cuda *cuda, uint32_t index, struct err *err)
{
    struct cuda_layer *layer = &cuda->layers[index];
    const size_t bytes = cuda_value_bytes(cuda, &layer->out);
    const uint32_t user = last_user(cuda, index);
    enum status status;

    if (layer->is_view || layer->graph->op == GRAPH_CROSS_ENTROPY)
        return STATUS_OK; /* of the loss there are sums alone */
    status = cuda_want(cuda, layer, &layer->out.data, bytes, index, last_use(cuda, index), err);
    if (status != STATUS_OK || !layer->out.needs_grad || user == GRAPH_NONE)
        return status;
    return cuda_want(cuda, layer, &layer->out.grad, bytes, backward_time(cuda, user),
                     backward_time(cuda, index), err);
}

/* Of several readers the last one in forward order writes the gradient, the others add to it. An
 * addition of a value to itself reads it twice. */
static enum status want_spares(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t k = 0; k < 2 && status == STATUS_OK && !layer->is_view; k++) {
        uint32_t root;

        if (layer->in[k] == NULL || !layer->in[k]->needs_grad)
            continue;
        root = root_of(cuda, layer->graph->inputs[k]);
        layer->adds[k] =
            last_user(cuda, root) != layer->index ||
            (k == 1 && layer->in[0] != NULL && root_of(cuda, layer->graph->inputs[0]) == root);
        if (layer->adds[k])
            status = cuda_want_in_backward(cuda, layer, &layer->spare[k],
                                           cuda_value_bytes(cuda, layer->in[k]), err);
    }
    return status;
}

static enum status place(struct cuda *cuda, struct err *err)
{
    struct cpu_plan_item *items = calloc((size_t)cuda->want_count + 1, sizeof *items);
    uint32_t *scratch = calloc(2 * (size_t)cuda->want_count + 1, sizeof *scratch);
    enum status status = STATUS_OK;
    size_t bytes;

    if (items == NULL || scratch == NULL) {
        free(items);
        free(scratch);
        return cuda_out_of_memory(NULL, err);
    }
    for (uint32_t i = 0; i < cuda->want_count; i++)
        items[i] = (struct cpu_plan_item){cuda->wants[i].bytes, cuda->wants[i].birth,
                                          cuda->wants[i].death, 0};
    bytes = cpu_plan(items, cuda->want_count, scratch);
    status = cuda->runtime->memory_new(&cuda->arena, bytes, err);
    if (status == STATUS_OK)
        cuda->bytes += bytes;
    for (uint32_t i = 0; status == STATUS_OK && i < cuda->want_count; i++)
        *cuda->wants[i].at = (char *)cuda->arena + items[i].offset;
    free(items);
    free(scratch);
    return status;
}

enum status cuda_memory_make(struct cuda *cuda, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; i < cuda->graph->layer_count && status == STATUS_OK; i++) {
        status = want_values(cuda, i, err);
        if (status == STATUS_OK)
            status = want_spares(cuda, &cuda->layers[i], err);
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
