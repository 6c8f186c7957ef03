/* Layers that are one kernel each: input, ReLU, pools, flatten, addition, cast, the loss. */
#include "worker/backend/cuda/exec/internal.h"

#define POINTWISE_COUNT(cuda, value) ((size_t)(cuda)->rows * (value)->image_size)

static enum status nothing(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    (void)cuda;
    (void)layer;
    (void)err;
    return STATUS_OK;
}

static enum status nothing_back(struct cuda *cuda, struct cuda_layer *layer, float grad_scale,
                                struct err *err)
{
    (void)grad_scale;
    return nothing(cuda, layer, err);
}

/* Images may have fewer stored channels than other values, and a flattened image has another order.
 * Kernels that work element by element, or channel by channel, need the same storage on both
 * sides. */
enum status cuda_same_storage(const struct cuda_layer *layer, struct err *err)
{
    for (uint32_t k = 0; k < 2; k++) {
        const struct cuda_value *in = layer->in[k];

        if (in == NULL || (in->channels == layer->out.channels && in->planes == layer->out.planes))
            continue;
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "layer %s: on CUDA %s does not read the images, nor a flattened one beside "
                       "another value: put a convolution or linear layer between, or use --device "
                       "cpu",
                       layer->graph->name, graph_op_name(layer->graph->op));
    }
    return STATUS_OK;
}

static enum status elements_open(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    (void)cuda;
    return cuda_same_storage(layer, err);
}

static enum status input_open(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const uint32_t channels = layer->graph->out.dims[0];

    (void)cuda;
    if (channels <= KERNEL_IMAGE_CHANNELS)
        return STATUS_OK;
    return err_set(err, STATUS_UNSUPPORTED, 0,
                   "layer %s: images of %u channels; on CUDA at most %d, use --device cpu",
                   layer->graph->name, channels, KERNEL_IMAGE_CHANNELS);
}

/* cuda_step_begin writes the images; a flatten shares its input's memory. */
const struct cuda_op cuda_op_input = {input_open, nothing, nothing_back};
const struct cuda_op cuda_op_flatten = {nothing, nothing, nothing_back};

static enum status relu_forward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    int code = cuda->kernels->relu(layer->out.data, layer->in[0]->data, cuda_type(layer->out.dtype),
                                   POINTWISE_COUNT(cuda, &layer->out), cuda->stream);

    return cuda_launched(cuda, layer, code, "relu", err);
}

static enum status relu_backward(struct cuda *cuda, struct cuda_layer *layer, float grad_scale,
                                 struct err *err)
{
    int code;

    (void)grad_scale;
    if (layer->dx[0] == NULL)
        return STATUS_OK;
    code = cuda->kernels->relu_backward(layer->dx[0], layer->out.data, layer->out.grad,
                                        cuda_type(layer->out.dtype),
                                        POINTWISE_COUNT(cuda, &layer->out), cuda->stream);
    return cuda_launched(cuda, layer, code, "relu backward", err);
}

const struct cuda_op cuda_op_relu = {elements_open, relu_forward, relu_backward};

static enum status pool_open(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const enum status status = cuda_same_storage(layer, err);

    return status == STATUS_OK
               ? cuda_request_until_backward(cuda, layer, (void **)&layer->place,
                                             layer->out.image_size * cuda->batch_max, err)
               : status;
}

struct kernel_pool cuda_pool_shape(const struct cuda *cuda, const struct cuda_layer *layer)
{
    const struct graph_window *window = &layer->graph->window;

    return (struct kernel_pool){
        .images = cuda->rows,
        .height = layer->in[0]->h,
        .width = layer->in[0]->w,
        .channels = layer->in[0]->channels,
        .kernel = window->kernel,
        .stride = window->stride,
        .pad = window->pad,
        .out_height = layer->out.h,
        .out_width = layer->out.w,
        .type = cuda_type(layer->out.dtype),
    };
}

static enum status pool_forward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const struct kernel_pool pool = cuda_pool_shape(cuda, layer);
    int code = cuda->kernels->max_pool(&pool, layer->in[0]->data, layer->out.data,
                                       cuda->training ? layer->place : NULL, cuda->stream);

    return cuda_launched(cuda, layer, code, "max pool", err);
}

static enum status pool_backward(struct cuda *cuda, struct cuda_layer *layer, float grad_scale,
                                 struct err *err)
{
    const struct kernel_pool pool = cuda_pool_shape(cuda, layer);
    int code;

    (void)grad_scale;
    if (layer->dx[0] == NULL)
        return STATUS_OK;
    code = cuda->kernels->max_pool_backward(&pool, layer->out.grad, layer->place, layer->dx[0],
                                            cuda->stream);
    return cuda_launched(cuda, layer, code, "max pool backward", err);
}

const struct cuda_op cuda_op_pool = {pool_open, pool_forward, pool_backward};

static enum status avg_forward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const struct cuda_value *in = layer->in[0];
    int code = cuda->kernels->avg_pool(in->data, layer->out.data, cuda_type(in->dtype), cuda->rows,
                                       in->h * in->w, in->channels, cuda->stream);

    return cuda_launched(cuda, layer, code, "average pool", err);
}

static enum status avg_backward(struct cuda *cuda, struct cuda_layer *layer, float grad_scale,
                                struct err *err)
{
    const struct cuda_value *in = layer->in[0];
    int code;

    (void)grad_scale;
    if (layer->dx[0] == NULL)
        return STATUS_OK;
    code = cuda->kernels->avg_pool_backward(layer->out.grad, layer->dx[0], cuda_type(in->dtype),
                                            cuda->rows, in->h * in->w, in->channels, cuda->stream);
    return cuda_launched(cuda, layer, code, "average pool backward", err);
}

const struct cuda_op cuda_op_avg_pool = {elements_open, avg_forward, avg_backward};

static enum status add_forward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    int code = cuda->kernels->add(layer->out.data, layer->in[0]->data, layer->in[1]->data,
                                  cuda_type(layer->out.dtype), layer->graph->fused_relu,
                                  POINTWISE_COUNT(cuda, &layer->out), cuda->stream);

    return cuda_launched(cuda, layer, code, "addition", err);
}

/* The gradient of both inputs. */
static enum status add_back_to(struct cuda *cuda, struct cuda_layer *layer, void *dx,
                               struct err *err)
{
    const enum kernel_type type = cuda_type(layer->out.dtype);
    const size_t count = POINTWISE_COUNT(cuda, &layer->out);
    int code;

    if (dx == NULL)
        return STATUS_OK;
    code = layer->graph->fused_relu
               ? cuda->kernels->relu_backward(dx, layer->out.data, layer->out.grad, type, count,
                                              cuda->stream)
               : cuda->kernels->cast(dx, type, layer->out.grad, type, count, cuda->stream);
    return cuda_launched(cuda, layer, code, "addition backward", err);
}

static enum status add_backward(struct cuda *cuda, struct cuda_layer *layer, float grad_scale,
                                struct err *err)
{
    enum status status = add_back_to(cuda, layer, layer->dx[0], err);

    (void)grad_scale;
    return status == STATUS_OK ? add_back_to(cuda, layer, layer->dx[1], err) : status;
}

const struct cuda_op cuda_op_add = {elements_open, add_forward, add_backward};

static enum status cast_forward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    int code;

    if (layer->is_view)
        return STATUS_OK;
    code = cuda->kernels->cast(layer->out.data, cuda_type(layer->out.dtype), layer->in[0]->data,
                               cuda_type(layer->in[0]->dtype), POINTWISE_COUNT(cuda, &layer->out),
                               cuda->stream);
    return cuda_launched(cuda, layer, code, "cast", err);
}

static enum status cast_backward(struct cuda *cuda, struct cuda_layer *layer, float grad_scale,
                                 struct err *err)
{
    int code;

    (void)grad_scale;
    if (layer->is_view || layer->dx[0] == NULL)
        return STATUS_OK;
    code = cuda->kernels->cast(layer->dx[0], cuda_type(layer->in[0]->dtype), layer->out.grad,
                               cuda_type(layer->out.dtype), POINTWISE_COUNT(cuda, &layer->out),
                               cuda->stream);
    return cuda_launched(cuda, layer, code, "cast backward", err);
}

const struct cuda_op cuda_op_cast = {nothing, cast_forward, cast_backward};

static enum status loss_open(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const struct cuda_value *logits = layer->in[0];

    (void)cuda;
    if (logits->planes == 1 && logits->h == 1 && logits->w == 1 && logits->dtype == GRAPH_F32)
        return STATUS_OK;
    return err_set(err, STATUS_UNSUPPORTED, 0,
                   "layer %s: cross_entropy reads what a linear layer makes", layer->graph->name);
}

static enum status loss_run(struct cuda *cuda, struct cuda_layer *layer, float grad_scale,
                            void *grads, struct err *err)
{
    const struct kernel_loss loss = {
        .rows = cuda->n,
        .classes = layer->graph->out.dims[0],
        .stride = layer->in[0]->channels,
        .type = KERNEL_F32,
        .grad_type = KERNEL_F32,
        .labels_are_i64 = true,
        .smoothing = cuda->training ? cuda->label_smoothing : 0.0F,
        .grad_scale = grad_scale,
    };
    int code = cuda->kernels->loss(&loss, layer->in[0]->data, cuda->labels, &cuda->scaler->scale,
                                   grads, cuda->loss_rows, cuda->loss_result, cuda->stream);

    return cuda_launched(cuda, layer, code, "cross entropy", err);
}

static enum status loss_forward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    return loss_run(cuda, layer, 1.0F, NULL, err);
}

/* Computes the softmax again, which costs less than storing it. */
static enum status loss_backward(struct cuda *cuda, struct cuda_layer *layer, float grad_scale,
                                 struct err *err)
{
    return layer->dx[0] == NULL ? STATUS_OK : loss_run(cuda, layer, grad_scale, layer->dx[0], err);
}

const struct cuda_op cuda_op_loss = {loss_open, loss_forward, loss_backward};
