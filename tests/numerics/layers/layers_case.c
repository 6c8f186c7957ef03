/* JSON to graph, and the draws. */
#include "tests/numerics/layers/layers_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const cJSON *field(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static uint32_t number(const cJSON *object, const char *name)
{
    const cJSON *item = field(object, name);

    return cJSON_IsNumber(item) ? (uint32_t)item->valuedouble : 0;
}

/* Index of the layer that `name` of `layer` names; `before` where it names none. */
static uint32_t source(const struct graph *graph, const cJSON *layer, const char *name,
                       uint32_t before)
{
    const char *wanted = cJSON_GetStringValue(field(layer, name));

    for (uint32_t i = 0; wanted != NULL && i < graph->layer_count; i++)
        if (strcmp(graph->layers[i].name, wanted) == 0)
            return i;
    return wanted == NULL ? before : GRAPH_NONE;
}

static uint32_t add_layer(struct graph *graph, const cJSON *layer, uint32_t before, struct err *err)
{
    const struct graph_window window = {number(layer, "kernel"), number(layer, "stride"),
                                        number(layer, "pad")};
    const uint32_t x = source(graph, layer, "input", before);
    const char *op = cJSON_GetStringValue(field(layer, "op"));
    const char *name = cJSON_GetStringValue(field(layer, "name"));
    const bool has_bias = cJSON_IsTrue(field(layer, "bias"));

    if (op != NULL && name != NULL) {
        if (strcmp(op, "conv2d") == 0)
            return graph_conv2d(graph, name, x, number(layer, "out"), window, has_bias);
        if (strcmp(op, "batch_norm") == 0)
            return graph_batch_norm(graph, name, x);
        if (strcmp(op, "relu") == 0)
            return graph_relu(graph, name, x);
        if (strcmp(op, "max_pool") == 0)
            return graph_max_pool(graph, name, x, window);
        if (strcmp(op, "avg_pool") == 0)
            return graph_avg_pool(graph, name, x);
        if (strcmp(op, "flatten") == 0)
            return graph_flatten(graph, name, x);
        if (strcmp(op, "linear") == 0)
            return graph_linear(graph, name, x, number(layer, "out"), has_bias);
        if (strcmp(op, "add") == 0)
            return graph_add(graph, name, x, source(graph, layer, "second", GRAPH_NONE));
    }
    (void)err_set(err, STATUS_BAD_INPUT, 0, "no layer kind %s", op != NULL ? op : "(none)");
    return GRAPH_NONE;
}

static enum status build(struct layers_case *c, struct err *err)
{
    const cJSON *shape = field(c->json, "input"), *layer, *batch;
    uint32_t x;

    if (cJSON_GetArraySize(shape) != 3)
        return err_set(err, STATUS_BAD_INPUT, 0, "the input has three dimensions");
    x = graph_input(c->graph, (uint32_t)shape->child->valuedouble,
                    (uint32_t)shape->child->next->valuedouble,
                    (uint32_t)shape->child->next->next->valuedouble);
    cJSON_ArrayForEach(layer, field(c->json, "layers"))
    {
        x = add_layer(c->graph, layer, x, err);
        if (x == GRAPH_NONE)
            return c->graph->err.status != STATUS_OK ? graph_check(c->graph, err)
                                                     : STATUS_BAD_INPUT;
    }
    (void)graph_cross_entropy(c->graph, "loss", x);
    cJSON_ArrayForEach(batch, field(c->json, "batches"))
    {
        const uint32_t n = number(batch, "n");

        c->batch_max = n > c->batch_max ? n : c->batch_max;
    }
    return graph_check(c->graph, err);
}

static void draw(struct layers_case *c, float low, float high, float quantum, float *values,
                 size_t count)
{
    rng_uniform_f32(&c->rng, low, high, values, count);
    for (size_t i = 0; quantum > 0.0F && i < count; i++)
        values[i] = rintf(values[i] / quantum) * quantum;
}

static enum status draw_tensors(struct layers_case *c, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; status == STATUS_OK && i < net_tensor_count(c->net); i++) {
        const struct net_tensor *tensor = net_tensor(c->net, i);
        const bool is_var = c->graph->tensors[i].role == GRAPH_RUNNING_VAR;
        float *values = calloc(tensor->count, sizeof *values);

        if (values == NULL)
            return err_set(err, STATUS_MEMORY, 0, "%s: out of memory", tensor->name);
        draw(c, is_var ? 0.5F : -0.6F, is_var ? 1.5F : 0.6F, c->quantum / 4, values, tensor->count);
        status = net_tensor_write(c->net, i, values, err);
        free(values);
    }
    return status;
}

enum status layers_case_open(struct layers_case *c, const cJSON *json, struct err *err)
{
    struct net_options options = {.bucket_first_bytes = 256, .bucket_bytes = 1024};
    const cJSON *quantum = field(json, "quantum"), *smoothing = field(json, "smoothing");
    enum status status;

    *c = (struct layers_case){.json = json, .graph = graph_new(), .seed = number(json, "seed")};
    c->name = cJSON_GetStringValue(field(json, "name"));
    c->quantum = cJSON_IsNumber(quantum) ? (float)quantum->valuedouble : 0.0F;
    if (c->graph == NULL)
        return err_set(err, STATUS_MEMORY, 0, "out of memory");
    status = build(c, err);
    options.batch_max = c->batch_max;
    options.label_smoothing = cJSON_IsNumber(smoothing) ? (float)smoothing->valuedouble : 0.0F;
    if (status == STATUS_OK && c->batch_max == 0)
        status = err_set(err, STATUS_BAD_INPUT, 0, "no batches");
    if (status == STATUS_OK)
        status = net_new(&c->net, c->graph, &options, err);
    rng_seed(&c->rng, c->seed);
    return status == STATUS_OK ? draw_tensors(c, err) : status;
}

void layers_case_close(struct layers_case *c)
{
    net_free(&c->net);
    graph_free(&c->graph);
}

float *layers_case_images(struct layers_case *c, uint32_t n)
{
    const size_t count = n * graph_value_count(&c->graph->layers[0].out);
    float *images = calloc(count, sizeof *images);

    if (images != NULL)
        draw(c, -1.0F, 1.0F, c->quantum, images, count);
    return images;
}

void layers_case_labels(const struct layers_case *c, uint32_t n, int64_t *labels)
{
    const uint32_t classes = c->graph->layers[c->graph->layer_count - 1].out.dims[0];

    for (uint32_t i = 0; i < n; i++)
        labels[i] = (int64_t)((i * 5 + c->seed) % classes);
}
