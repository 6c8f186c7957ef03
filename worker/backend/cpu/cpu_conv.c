/* Convolution by oneDNN, a few images at a time.
 *
 * The batch is cut into chunks whose output stays in the L2 cache. Forward, the batch norm behind
 * it sums up each chunk as soon as it is made; backward, it turns each chunk into dx just before
 * the two backward convolutions read it. Weights stay in the layout that the forward convolution
 * likes best; where backward likes another, they are reordered once a step (some KiB). No gradient
 * is computed for the network's input. */
#include "worker/backend/cpu/cpu.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SETS_MAX 8
#define WEIGHTS_PER_CHUNK 4 /* a chunk reads and writes all weights: it has to be worth it */

/* The primitives for one number of images. */
struct conv_set {
    uint32_t n; /* 0: free */
    struct cpu_prim forward, data, weights;
};

struct conv {
    uint32_t chunk;
    dnnl_memory_desc_t data_md;    /* weights as backward-data reads them */
    dnnl_memory_desc_t weights_md; /* their gradient as backward-weights makes it */
    float *data_weights;           /* NULL: the stored weights will do */
    float *weights_sum;            /* NULL: the gradient arena itself */
    float *partial;                /* one chunk's gradient of weights, then of bias */
    float *input_grad;             /* one chunk's gradient of the input, to be added; or NULL */
    struct cpu_prim to_data, from_weights;
    struct conv_set sets[SETS_MAX];
    uint32_t set_next;
};

static uint32_t chunk_images(const struct cpu *cpu, const struct cpu_layer *layer)
{
    const struct graph_window *window = &layer->graph->window;
    const size_t bytes = layer->out.image_size * sizeof(float);
    const size_t weights_bytes = (size_t)layer->out.dims[0] * layer->in->dims[0] * window->kernel *
                                 window->kernel * sizeof(float);
    size_t chunk = CPU_CHUNK_BYTES, images;

    if (chunk < WEIGHTS_PER_CHUNK * weights_bytes)
        chunk = WEIGHTS_PER_CHUNK * weights_bytes;
    images = bytes < chunk ? chunk / bytes : 1;

    return images < cpu->batch_max ? (uint32_t)images : cpu->batch_max;
}

static void weights_dims(const struct cpu_layer *layer, dnnl_dims_t dims)
{
    dims[0] = layer->out.dims[0];
    dims[1] = layer->in->dims[0];
    dims[2] = layer->graph->window.kernel;
    dims[3] = layer->graph->window.kernel;
}

struct conv_mds {
    dnnl_memory_desc_t in, out, bias;
    dnnl_dims_t stride, pad;
};

static dnnl_status_t describe(const struct cpu *cpu, const struct cpu_layer *layer, uint32_t n,
                              struct conv_mds *mds)
{
    const struct graph_window *window = &layer->graph->window;
    dnnl_status_t rc = cpu_value_md(cpu, layer->in, n, &mds->in);

    if (rc == dnnl_success)
        rc = cpu_value_md(cpu, &layer->out, n, &mds->out);
    memset(&mds->bias, 0, sizeof mds->bias);
    if (layer->graph->has_bias)
        cpu_vector_md(layer->out.dims[0], &mds->bias);
    for (int i = 0; i < 2; i++) {
        mds->stride[i] = window->stride;
        mds->pad[i] = window->pad;
    }
    return rc;
}

static dnnl_status_t forward_pd(const struct cpu *cpu, const struct cpu_layer *layer,
                                const struct conv_mds *mds, const dnnl_memory_desc_t *weights,
                                dnnl_primitive_desc_t *pd)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t rc = dnnl_convolution_forward_desc_init(
        &desc, dnnl_forward_training, dnnl_convolution_direct, &mds->in, weights,
        layer->graph->has_bias ? &mds->bias : NULL, &mds->out, mds->stride, mds->pad, mds->pad);

    if (rc != dnnl_success)
        return rc;
    return dnnl_primitive_desc_create(pd, &desc, cpu->attr, cpu->engine, NULL);
}

/* `hint`: the forward primitive's descriptor. */
static dnnl_status_t data_pd(const struct cpu *cpu, const struct conv_mds *mds,
                             const dnnl_memory_desc_t *weights, const_dnnl_primitive_desc_t hint,
                             dnnl_primitive_desc_t *pd)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t rc =
        dnnl_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, &mds->in, weights,
                                                 &mds->out, mds->stride, mds->pad, mds->pad);

    if (rc != dnnl_success)
        return rc;
    return dnnl_primitive_desc_create(pd, &desc, cpu->attr, cpu->engine, hint);
}

static dnnl_status_t weights_pd(const struct cpu *cpu, const struct cpu_layer *layer,
                                const struct conv_mds *mds, const dnnl_memory_desc_t *weights,
                                const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t rc = dnnl_convolution_backward_weights_desc_init(
        &desc, dnnl_convolution_direct, &mds->in, weights,
        layer->graph->has_bias ? &mds->bias : NULL, &mds->out, mds->stride, mds->pad, mds->pad);

    if (rc != dnnl_success)
        return rc;
    return dnnl_primitive_desc_create(pd, &desc, cpu->attr, cpu->engine, hint);
}

/* Asks oneDNN which layouts of the weights it likes best in the three directions. */
static dnnl_status_t choose_layouts(const struct cpu *cpu, const struct cpu_layer *layer,
                                    struct conv *conv)
{
    dnnl_memory_desc_t any, plain;
    dnnl_primitive_desc_t forward = NULL, pd = NULL;
    struct conv_mds mds;
    dnnl_dims_t dims;
    dnnl_status_t rc;

    weights_dims(layer, dims);
    rc = dnnl_memory_desc_init_by_tag(&any, 4, dims, dnnl_f32, dnnl_format_tag_any);
    if (rc == dnnl_success)
        rc = dnnl_memory_desc_init_by_tag(&plain, 4, dims, dnnl_f32, dnnl_oihw);
    if (rc == dnnl_success)
        rc = describe(cpu, layer, conv->chunk, &mds);
    if (rc == dnnl_success)
        rc = forward_pd(cpu, layer, &mds, &any, &forward);
    if (rc != dnnl_success)
        return rc;
    cpu_tensor_set_layout(&layer->tensors[0], &plain,
                          dnnl_primitive_desc_query_md(forward, dnnl_query_weights_md, 0));
    if (layer->in->needs_grad) {
        rc = data_pd(cpu, &mds, &any, forward, &pd);
        if (rc == dnnl_success) {
            conv->data_md = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
            (void)dnnl_primitive_desc_destroy(pd);
        }
    }
    if (rc == dnnl_success)
        rc = weights_pd(cpu, layer, &mds, &any, forward, &pd);
    if (rc == dnnl_success) {
        conv->weights_md = *dnnl_primitive_desc_query_md(pd, dnnl_query_diff_weights_md, 0);
        (void)dnnl_primitive_desc_destroy(pd);
    }
    (void)dnnl_primitive_desc_destroy(forward);
    return rc;
}

static bool fits(size_t *bytes, const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b)
{
    *bytes = dnnl_memory_desc_get_size(a);
    return dnnl_memory_desc_equal(a, b) != 0;
}

static bool has_other_reader(const struct cpu *cpu, const struct cpu_layer *layer)
{
    return graph_only_user(cpu->graph, layer->graph->inputs[0]) == GRAPH_NONE;
}

static enum status make_buffers(struct cpu *cpu, struct cpu_layer *layer, struct conv *conv,
                                struct err *err)
{
    const dnnl_memory_desc_t *stored = &layer->tensors[0].stored;
    const size_t input_bytes = conv->chunk * layer->in->image_size * sizeof(float);
    enum status status = STATUS_OK;
    size_t bytes;

    if (layer->in->needs_grad && !fits(&bytes, &conv->data_md, stored))
        status = cpu_want_in_backward(cpu, layer, &conv->data_weights, bytes, err);
    if (status == STATUS_OK && !fits(&bytes, &conv->weights_md, stored))
        status = cpu_want_in_backward(cpu, layer, &conv->weights_sum, bytes, err);
    if (status == STATUS_OK && conv->chunk < cpu->batch_max)
        status = cpu_want_in_backward(cpu, layer, &conv->partial,
                                      bytes + layer->out.dims[0] * sizeof(float), err);
    if (status == STATUS_OK && layer->in->needs_grad && has_other_reader(cpu, layer))
        status = cpu_want_in_backward(cpu, layer, &conv->input_grad, input_bytes, err);
    return status;
}

static enum status conv_open(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    struct conv *conv = calloc(1, sizeof *conv);
    enum status status;

    if (conv == NULL)
        return cpu_out_of_memory(layer, err);
    layer->own = conv;
    conv->chunk = chunk_images(cpu, layer);
    status = cpu_check(choose_layouts(cpu, layer, conv), layer, "conv2d", err);
    if (status == STATUS_OK && layer->graph->has_bias)
        layer->tensors[1] = (struct cpu_tensor){
            .is_vector = true, .count = layer->out.dims[0], .size = layer->out.dims[0]};
    if (status == STATUS_OK && !cpu->evaluate_only)
        status = make_buffers(cpu, layer, conv, err);
    return status;
}

static void close_set(struct conv_set *set)
{
    cpu_prim_close(&set->forward);
    cpu_prim_close(&set->data);
    cpu_prim_close(&set->weights);
    set->n = 0;
}

static void conv_close(struct cpu_layer *layer)
{
    struct conv *conv = layer->own;

    if (conv == NULL)
        return;
    for (uint32_t i = 0; i < SETS_MAX; i++)
        close_set(&conv->sets[i]);
    cpu_prim_close(&conv->to_data);
    cpu_prim_close(&conv->from_weights);
    free(conv);
    layer->own = NULL;
}

static const float *bias_of(const struct cpu_layer *layer)
{
    return layer->graph->has_bias ? layer->tensors[1].param : NULL;
}

static enum status make_forward(struct cpu *cpu, struct cpu_layer *layer, struct conv_set *set,
                                const struct conv_mds *mds, dnnl_primitive_desc_t pd,
                                struct err *err)
{
    struct cpu_prim *prim = &set->forward;
    const struct cpu_tensor *weights = &layer->tensors[0];
    enum status status = cpu_prim_make(cpu, layer, prim, pd, err);

    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_SRC, &mds->in, layer->in->data, err);
    if (status == STATUS_OK)
        status =
            cpu_prim_arg(cpu, layer, prim, DNNL_ARG_WEIGHTS, &weights->stored, weights->param, err);
    if (status == STATUS_OK && bias_of(layer) != NULL)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_BIAS, &mds->bias, bias_of(layer), err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_DST, &mds->out, layer->out.data, err);
    return status;
}

static enum status make_data(struct cpu *cpu, struct cpu_layer *layer, struct conv_set *set,
                             const struct conv_mds *mds, const_dnnl_primitive_desc_t hint,
                             struct err *err)
{
    const struct conv *conv = layer->own;
    const float *weights =
        conv->data_weights != NULL ? conv->data_weights : layer->tensors[0].param;
    struct cpu_prim *prim = &set->data;
    dnnl_primitive_desc_t pd = NULL;
    enum status status =
        cpu_check(data_pd(cpu, mds, &conv->data_md, hint, &pd), layer, "backward data", err);

    if (status == STATUS_OK)
        status = cpu_prim_make(cpu, layer, prim, pd, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_DIFF_SRC, &mds->in, layer->in->grad, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_WEIGHTS, &conv->data_md, weights, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_DIFF_DST, &mds->out, layer->out.grad, err);
    return status;
}

static enum status make_weights(struct cpu *cpu, struct cpu_layer *layer, struct conv_set *set,
                                const struct conv_mds *mds, const_dnnl_primitive_desc_t hint,
                                struct err *err)
{
    const struct conv *conv = layer->own;
    struct cpu_prim *prim = &set->weights;
    dnnl_primitive_desc_t pd = NULL;
    enum status status = cpu_check(weights_pd(cpu, layer, mds, &conv->weights_md, hint, &pd), layer,
                                   "backward weights", err);

    if (status == STATUS_OK)
        status = cpu_prim_make(cpu, layer, prim, pd, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_SRC, &mds->in, layer->in->data, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_DIFF_DST, &mds->out, layer->out.grad, err);
    if (status == STATUS_OK)
        status =
            cpu_prim_arg(cpu, layer, prim, DNNL_ARG_DIFF_WEIGHTS, &conv->weights_md, NULL, err);
    if (status == STATUS_OK && bias_of(layer) != NULL)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_DIFF_BIAS, &mds->bias, NULL, err);
    return status;
}

static enum status make_set(struct cpu *cpu, struct cpu_layer *layer, struct conv_set *set,
                            uint32_t n, struct err *err)
{
    dnnl_primitive_desc_t forward = NULL, hint = NULL;
    struct conv_mds mds;
    enum status status = cpu_check(describe(cpu, layer, n, &mds), layer, "conv2d", err);

    if (status == STATUS_OK)
        status = cpu_check(forward_pd(cpu, layer, &mds, &layer->tensors[0].stored, &forward), layer,
                           "forward", err);
    if (status == STATUS_OK)
        status = cpu_check(dnnl_primitive_desc_clone(&hint, forward), layer, "forward", err);
    if (status == STATUS_OK)
        status = make_forward(cpu, layer, set, &mds, forward, err);
    if (status == STATUS_OK && !cpu->evaluate_only && layer->in->grad != NULL)
        status = make_data(cpu, layer, set, &mds, hint, err);
    if (status == STATUS_OK && !cpu->evaluate_only)
        status = make_weights(cpu, layer, set, &mds, hint, err);
    if (hint != NULL)
        (void)dnnl_primitive_desc_destroy(hint);
    if (status == STATUS_OK)
        set->n = n;
    else
        close_set(set);
    return status;
}

/* The set for n images; makes it at its first use, in place of the oldest when there are too many.
 */
static enum status find_set(struct cpu *cpu, struct cpu_layer *layer, uint32_t n,
                            struct conv_set **set, struct err *err)
{
    struct conv *conv = layer->own;

    for (uint32_t i = 0; i < SETS_MAX; i++) {
        *set = &conv->sets[i];
        if ((*set)->n == n)
            return STATUS_OK;
    }
    *set = &conv->sets[conv->set_next];
    conv->set_next = (conv->set_next + 1) % SETS_MAX;
    close_set(*set);
    return make_set(cpu, layer, *set, n, err);
}

static uint32_t next_chunk(const struct cpu *cpu, const struct conv *conv, uint32_t first)
{
    return cpu->n - first < conv->chunk ? cpu->n - first : conv->chunk;
}

static enum status conv_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    const struct conv *conv = layer->own;
    struct conv_set *set;
    uint32_t n;

    for (uint32_t first = 0; first < cpu->n; first += n) {
        enum status status;
        uint64_t start;

        n = next_chunk(cpu, conv, first);
        status = find_set(cpu, layer, n, &set, err);
        if (status != STATUS_OK)
            return status;
        cpu_prim_point(&set->forward, DNNL_ARG_SRC,
                       layer->in->data + first * layer->in->image_size);
        cpu_prim_point(&set->forward, DNNL_ARG_DST,
                       layer->out.data + first * layer->out.image_size);
        start = cpu_clock(cpu);
        status = cpu_prim_run(cpu, layer, &set->forward, err);
        cpu_count(cpu, layer, CPU_CONV_FORWARD, start);
        if (status != STATUS_OK)
            return status;
        cpu_round(cpu, layer->graph->out.dtype, layer->out.data + first * layer->out.image_size,
                  n * layer->out.image_size);
        if (layer->norm != NULL && cpu->training)
            cpu_norm_sums(cpu, layer->norm, first, n);
    }
    return STATUS_OK;
}

static void add_to(float *restrict sum, const float *restrict part, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += part[i];
}

/* Gradient of weights and bias over one chunk, written for the first and added for the others. */
static enum status backward_weights(struct cpu *cpu, struct cpu_layer *layer, struct conv_set *set,
                                    uint32_t first, struct err *err)
{
    const struct conv *conv = layer->own;
    const size_t count = dnnl_memory_desc_get_size(&conv->weights_md) / sizeof(float);
    float *sum = conv->weights_sum != NULL ? conv->weights_sum : layer->tensors[0].grad;
    float *weights = first == 0 ? sum : conv->partial;
    float *bias_sum = bias_of(layer) != NULL ? layer->tensors[1].grad : NULL;
    float *bias = first == 0 ? bias_sum : conv->partial + count;
    uint64_t start;
    enum status status;

    cpu_prim_point(&set->weights, DNNL_ARG_SRC, layer->in->data + first * layer->in->image_size);
    cpu_prim_point(&set->weights, DNNL_ARG_DIFF_DST,
                   layer->out.grad + first * layer->out.image_size);
    cpu_prim_point(&set->weights, DNNL_ARG_DIFF_WEIGHTS, weights);
    if (bias_sum != NULL)
        cpu_prim_point(&set->weights, DNNL_ARG_DIFF_BIAS, bias);
    start = cpu_clock(cpu);
    status = cpu_prim_run(cpu, layer, &set->weights, err);
    cpu_count(cpu, layer, CPU_CONV_WEIGHTS, start);
    if (status != STATUS_OK || first == 0)
        return status;
    add_to(sum, weights, count);
    if (bias_sum != NULL)
        add_to(bias_sum, bias, layer->out.dims[0]);
    return STATUS_OK;
}

static enum status backward_data(struct cpu *cpu, struct cpu_layer *layer, struct conv_set *set,
                                 uint32_t first, struct err *err)
{
    const struct conv *conv = layer->own;
    float *grad = layer->in->grad + first * layer->in->image_size;
    float *made = layer->adds[0] ? conv->input_grad : grad;
    const size_t count = set->n * layer->in->image_size;
    uint64_t start;
    enum status status;

    cpu_prim_point(&set->data, DNNL_ARG_DIFF_SRC, made);
    cpu_prim_point(&set->data, DNNL_ARG_DIFF_DST, layer->out.grad + first * layer->out.image_size);
    start = cpu_clock(cpu);
    status = cpu_prim_run(cpu, layer, &set->data, err);
    cpu_count(cpu, layer, CPU_CONV_DATA, start);
    if (layer->adds[0] && status == STATUS_OK) {
        cpu_round(cpu, cpu->graph->layers[layer->graph->inputs[0]].out.dtype, made, count);
        cpu_add_grad(cpu, grad, made, count, true);
    }
    return status;
}

/* Runs a reorder, making it the first time. */
static enum status convert(struct cpu *cpu, struct cpu_layer *layer, struct cpu_prim *prim,
                           const dnnl_memory_desc_t *from_md, const float *from,
                           const dnnl_memory_desc_t *to_md, float *to, struct err *err)
{
    dnnl_primitive_desc_t pd = NULL;
    enum status status = STATUS_OK;

    if (prim->prim != NULL)
        return cpu_prim_run(cpu, layer, prim, err);
    status = cpu_check(dnnl_reorder_primitive_desc_create(&pd, from_md, cpu->engine, to_md,
                                                          cpu->engine, cpu->attr),
                       layer, "reorder of weights", err);
    if (status == STATUS_OK)
        status = cpu_prim_make(cpu, layer, prim, pd, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_FROM, from_md, from, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_TO, to_md, to, err);
    if (status == STATUS_OK)
        return cpu_prim_run(cpu, layer, prim, err);
    cpu_prim_close(prim);
    return status;
}

static enum status conv_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                 struct err *err)
{
    struct conv *conv = layer->own;
    struct cpu_tensor *weights = &layer->tensors[0];
    enum status status = STATUS_OK;
    uint32_t n;

    (void)grad_scale;
    if (conv->data_weights != NULL)
        status = convert(cpu, layer, &conv->to_data, &weights->stored, weights->param,
                         &conv->data_md, conv->data_weights, err);
    for (uint32_t first = 0; first < cpu->n && status == STATUS_OK; first += n) {
        struct conv_set *set;

        n = next_chunk(cpu, conv, first);
        status = find_set(cpu, layer, n, &set, err);
        if (status == STATUS_OK && layer->norm != NULL)
            cpu_norm_backward_apply(cpu, layer->norm, first, n);
        if (status == STATUS_OK && layer->in->grad != NULL)
            status = backward_data(cpu, layer, set, first, err);
        if (status == STATUS_OK)
            status = backward_weights(cpu, layer, set, first, err);
    }
    if (status == STATUS_OK && conv->weights_sum != NULL)
        status = convert(cpu, layer, &conv->from_weights, &conv->weights_md, conv->weights_sum,
                         &weights->stored, weights->grad, err);
    return status;
}

const struct cpu_op cpu_op_conv = {conv_open, conv_close, conv_forward, conv_backward};
