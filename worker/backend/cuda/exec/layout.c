/* Shapes: where a value's channels and a tensor's elements are in memory. */
#include <assert.h>
#include <string.h>

#include "kernels/values.h"
#include "worker/backend/cuda/exec/internal.h"

enum kernel_type cuda_type(enum graph_dtype dtype)
{
    static const enum kernel_type types[] = {
        [GRAPH_F32] = KERNEL_F32, [GRAPH_F16] = KERNEL_F16, [GRAPH_BF16] = KERNEL_BF16};

    return types[dtype];
}

/* The images are written in the type that their only reader casts them to. */
static enum graph_dtype input_type(const struct cuda *cuda)
{
    uint32_t user = graph_only_user(cuda->graph, 0);

    if (user != GRAPH_NONE && cuda->graph->layers[user].op == GRAPH_CAST)
        return cuda->graph->layers[user].out.dtype;
    return GRAPH_F32;
}

static void describe_flattened(struct cuda_value *value, const struct cuda_value *in)
{
    *value = *in;
    value->planes = in->planes * in->h * in->w;
    value->h = value->w = 1;
}

static bool is_like_input(enum graph_op op)
{
    return op == GRAPH_RELU || op == GRAPH_CAST || op == GRAPH_ADD || op == GRAPH_BATCH_NORM;
}

void cuda_describe_value(struct cuda *cuda, struct cuda_layer *layer)
{
    const struct graph_value *shape = &layer->graph->out;
    const enum graph_op op = layer->graph->op;
    struct cuda_value *value = &layer->out;

    layer->is_view =
        op == GRAPH_FLATTEN || (op == GRAPH_CAST && layer->in[0]->dtype == shape->dtype);
    if (op == GRAPH_FLATTEN) {
        describe_flattened(value, layer->in[0]);
    } else if (is_like_input(op) && shape->dim_count == 1) {
        *value = *layer->in[0]; /* features in the input's order, maybe a flattened image */
    } else {
        value->channels = op == GRAPH_INPUT ? plan_image_channels(cuda->graph)
                                            : plan_stored_channels(shape->dims[0]);
        value->h = shape->dim_count == 3 ? shape->dims[1] : 1;
        value->w = shape->dim_count == 3 ? shape->dims[2] : 1;
        value->planes = 1;
    }
    if (op == GRAPH_CAST && layer->in[0]->channels != value->channels)
        value->channels = layer->in[0]->channels; /* those of the images */
    value->dtype = op == GRAPH_INPUT ? input_type(cuda) : shape->dtype;
    value->image_size = (size_t)value->channels * value->planes * value->h * value->w;
    value->data = value->grad = NULL;
    value->needs_grad =
        !cuda->evaluate_only && op != GRAPH_CROSS_ENTROPY &&
        (layer->graph->tensor_count > 0 || (layer->in[0] != NULL && layer->in[0]->needs_grad) ||
         (layer->in[1] != NULL && layer->in[1]->needs_grad));
}

/* Stores [out][in][kh][kw] as [out][kh][kw][in]. */
static void describe_conv(struct cuda_tensor *tensor, const struct cuda_layer *layer)
{
    const uint32_t kernel = layer->graph->window.kernel;
    const size_t in = layer->in[0]->channels;

    tensor->axes[0] = (struct cuda_axis){tensor->graph->dims[0], 1, kernel * kernel * in, 0};
    tensor->axes[1] = (struct cuda_axis){tensor->graph->dims[1], 1, 1, 0};
    tensor->axes[2] = (struct cuda_axis){kernel, 1, kernel * in, 0};
    tensor->axes[3] = (struct cuda_axis){kernel, 1, in, 0};
    tensor->size = layer->out.channels * kernel * kernel * in;
}

static struct cuda_axis feature_axis(uint32_t count, const struct cuda_value *value)
{
    return (struct cuda_axis){count, value->planes, 1, value->channels};
}

void cuda_describe_tensors(struct cuda *cuda, struct cuda_layer *layer)
{
    for (uint32_t i = 0; i < layer->graph->tensor_count; i++) {
        struct cuda_tensor *tensor = &layer->tensors[i];
        const struct graph_tensor *graph = &cuda->graph->tensors[layer->graph->tensor_first + i];

        *tensor = (struct cuda_tensor){.graph = graph, .axis_count = graph->dim_count};
        if (graph->dim_count == 4) {
            describe_conv(tensor, layer);
        } else if (graph->dim_count == 2) {
            tensor->axes[0] = (struct cuda_axis){graph->dims[0], 1, layer->in[0]->image_size, 0};
            tensor->axes[1] = feature_axis(graph->dims[1], layer->in[0]);
            tensor->size = layer->out.channels * layer->in[0]->image_size;
        } else {
            tensor->axes[0] = feature_axis(graph->dims[0], &layer->out);
            tensor->size = (size_t)layer->out.channels * layer->out.planes;
        }
    }
}

static size_t axis_at(const struct cuda_axis *axis, size_t i)
{
    return axis->planes == 1 ? i * axis->step
                             : i / axis->planes * axis->step + i % axis->planes * axis->plane;
}

/* A walk over the row-major elements, one axis index at a time: dividing each element's number by every axis took
 * half of a ResNet-50's start. */
struct place {
    const struct cuda_tensor *tensor;
    uint32_t index[4];
    size_t part[4]; /* of the stored position, by axis */
};

static size_t place_at(const struct place *place)
{
    size_t at = 0;

    for (uint32_t a = 0; a < place->tensor->axis_count; a++)
        at += place->part[a];
    return at;
}

static void place_next(struct place *place)
{
    uint32_t a = place->tensor->axis_count;

    while (a-- > 0) {
        const struct cuda_axis *axis = &place->tensor->axes[a];
        const bool is_over = ++place->index[a] == axis->count;

        if (is_over)
            place->index[a] = 0;
        place->part[a] = axis_at(axis, place->index[a]);
        if (!is_over)
            return;
    }
}

void cuda_tensor_store(const struct cuda_tensor *tensor, const float *row_major, float *stored)
{
    struct place place = {.tensor = tensor};

    for (size_t i = 0; i < tensor->graph->count; i++, place_next(&place))
        stored[place_at(&place)] = row_major[i];
}

void cuda_tensor_fetch(const struct cuda_tensor *tensor, const float *stored, float *row_major)
{
    struct place place = {.tensor = tensor};

    for (size_t i = 0; i < tensor->graph->count; i++, place_next(&place))
        row_major[i] = stored[place_at(&place)];
}

void cuda_widen(const void *from, enum graph_dtype type, size_t n, float *to)
{
    if (type == GRAPH_F32) {
        memcpy(to, from, n * sizeof *to);
        return;
    }
    for (size_t i = 0; i < n; i++)
        to[i] = values_get(from, cuda_type(type), i);
}

void cuda_narrow(const float *from, enum graph_dtype type, size_t n, void *to)
{
    if (type == GRAPH_F32) {
        memcpy(to, from, n * sizeof *from);
        return;
    }
    for (size_t i = 0; i < n; i++)
        ((uint16_t *)to)[i] = values_round(from[i], cuda_type(type));
}
