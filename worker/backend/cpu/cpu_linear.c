/* Fully connected layer by oneDNN. Behind a flatten it reads the blocked value as it lies: the
 * weights' columns are stored in that order instead, so that activations are never reordered. */
#include "worker/backend/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#define SETS_MAX 4
#define OWN_OUTPUTS_MAX 32 /* above, oneDNN's matrix product is the faster */

struct linear_set {
    uint32_t n; /* 0: free */
    struct cpu_prim forward, data, weights;
};

struct linear {
    struct linear_set sets[SETS_MAX];
    uint32_t set_next;
};

struct linear_mds {
    dnnl_memory_desc_t in, out, bias;
    const dnnl_memory_desc_t *bias_or_null;
};

static dnnl_status_t describe(const struct cpu *cpu, const struct cpu_layer *layer, uint32_t n,
                              struct linear_mds *mds)
{
    dnnl_status_t rc = cpu_value_md(cpu, layer->in, n, &mds->in);

    if (rc == dnnl_success)
        rc = cpu_value_md(cpu, &layer->out, n, &mds->out);
    cpu_vector_md(layer->out.dims[0], &mds->bias);
    mds->bias_or_null = layer->graph->has_bias ? &mds->bias : NULL;
    return rc;
}

static dnnl_status_t forward_pd(const struct cpu *cpu, const struct linear_mds *mds,
                                const dnnl_memory_desc_t *weights, dnnl_primitive_desc_t *pd)
{
    dnnl_inner_product_desc_t desc;
    dnnl_status_t rc = dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, &mds->in,
                                                            weights, mds->bias_or_null, &mds->out);

    if (rc != dnnl_success)
        return rc;
    return dnnl_primitive_desc_create(pd, &desc, cpu->attr, cpu->engine, NULL);
}

/* [out][in features] row-major, seen as [out][channels][height][width] where the input is an image,
 * and its twin whose columns lie as the blocked input does. */
static dnnl_status_t weights_mds(const struct cpu *cpu, const struct cpu_layer *layer,
                                 dnnl_memory_desc_t *plain, dnnl_memory_desc_t *stored)
{
    const struct cpu_value *in = layer->in;
    const dnnl_dims_t dims = {layer->out.dims[0], in->dims[0], in->dims[1], in->dims[2]};
    dnnl_status_t rc;

    if (!in->blocked) {
        const bool image = in->dims[1] != 1 || in->dims[2] != 1;

        rc = dnnl_memory_desc_init_by_tag(plain, image ? 4 : 2, dims, dnnl_f32,
                                          image ? dnnl_oihw : dnnl_oi);
        *stored = *plain;
        return rc;
    }
    rc = dnnl_memory_desc_init_by_tag(plain, 4, dims, dnnl_f32, dnnl_oihw);
    if (rc != dnnl_success)
        return rc;
    return dnnl_memory_desc_init_by_tag(stored, 4, dims, dnnl_f32,
                                        cpu->kernels->block == 16 ? dnnl_aBcd16b : dnnl_aBcd8b);
}

static enum status linear_open(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    dnnl_memory_desc_t plain, stored;
    enum status status;

    layer->own = calloc(1, sizeof(struct linear));
    if (layer->own == NULL)
        return cpu_out_of_memory(layer, err);
    status = cpu_check(weights_mds(cpu, layer, &plain, &stored), layer, "linear", err);
    if (status != STATUS_OK)
        return status;
    cpu_tensor_set_layout(&layer->tensors[0], &plain, &stored);
    if (layer->graph->has_bias)
        layer->tensors[1] = (struct cpu_tensor){
            .is_vector = true, .count = layer->out.dims[0], .size = layer->out.dims[0]};
    return STATUS_OK;
}

static void close_set(struct linear_set *set)
{
    cpu_prim_close(&set->forward);
    cpu_prim_close(&set->data);
    cpu_prim_close(&set->weights);
    set->n = 0;
}

static void linear_close(struct cpu_layer *layer)
{
    struct linear *linear = layer->own;

    if (linear == NULL)
        return;
    for (uint32_t i = 0; i < SETS_MAX; i++)
        close_set(&linear->sets[i]);
    free(linear);
    layer->own = NULL;
}

static enum status make_forward(struct cpu *cpu, struct cpu_layer *layer, struct linear_set *set,
                                const struct linear_mds *mds, dnnl_primitive_desc_t pd,
                                struct err *err)
{
    const struct cpu_tensor *tensors = layer->tensors;
    struct cpu_prim *prim = &set->forward;
    enum status status = cpu_prim_make(cpu, layer, prim, pd, err);

    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_SRC, &mds->in, layer->in->data, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_WEIGHTS, &tensors[0].stored,
                              tensors[0].param, err);
    if (status == STATUS_OK && mds->bias_or_null != NULL)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_BIAS, &mds->bias, tensors[1].param, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_DST, &mds->out, layer->out.data, err);
    return status;
}

static enum status make_data(struct cpu *cpu, struct cpu_layer *layer, struct linear_set *set,
                             const struct linear_mds *mds, const_dnnl_primitive_desc_t hint,
                             struct err *err)
{
    const struct cpu_tensor *weights = &layer->tensors[0];
    struct cpu_prim *prim = &set->data;
    dnnl_inner_product_desc_t desc;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t rc =
        dnnl_inner_product_backward_data_desc_init(&desc, &mds->in, &weights->stored, &mds->out);
    enum status status;

    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(&pd, &desc, cpu->attr, cpu->engine, hint);
    status = cpu_check(rc, layer, "backward data", err);
    if (status == STATUS_OK)
        status = cpu_prim_make(cpu, layer, prim, pd, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_DIFF_SRC, &mds->in, layer->in->grad, err);
    if (status == STATUS_OK)
        status =
            cpu_prim_arg(cpu, layer, prim, DNNL_ARG_WEIGHTS, &weights->stored, weights->param, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_DIFF_DST, &mds->out, layer->out.grad, err);
    return status;
}

static enum status make_weights(struct cpu *cpu, struct cpu_layer *layer, struct linear_set *set,
                                const struct linear_mds *mds, const_dnnl_primitive_desc_t hint,
                                struct err *err)
{
    const struct cpu_tensor *tensors = layer->tensors;
    struct cpu_prim *prim = &set->weights;
    dnnl_inner_product_desc_t desc;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t rc = dnnl_inner_product_backward_weights_desc_init(
        &desc, &mds->in, &tensors[0].stored, mds->bias_or_null, &mds->out);
    enum status status;

    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(&pd, &desc, cpu->attr, cpu->engine, hint);
    status = cpu_check(rc, layer, "backward weights", err);
    if (status == STATUS_OK)
        status = cpu_prim_make(cpu, layer, prim, pd, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_SRC, &mds->in, layer->in->data, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_DIFF_DST, &mds->out, layer->out.grad, err);
    if (status == STATUS_OK)
        status = cpu_prim_arg(cpu, layer, prim, DNNL_ARG_DIFF_WEIGHTS, &tensors[0].stored,
                              tensors[0].grad, err);
    if (status == STATUS_OK && mds->bias_or_null != NULL)
        status =
            cpu_prim_arg(cpu, layer, prim, DNNL_ARG_DIFF_BIAS, &mds->bias, tensors[1].grad, err);
    return status;
}

static enum status make_set(struct cpu *cpu, struct cpu_layer *layer, struct linear_set *set,
                            uint32_t n, struct err *err)
{
    dnnl_primitive_desc_t forward = NULL, hint = NULL;
    struct linear_mds mds;
    dnnl_status_t rc = describe(cpu, layer, n, &mds);
    enum status status;

    if (rc == dnnl_success)
        rc = forward_pd(cpu, &mds, &layer->tensors[0].stored, &forward);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_clone(&hint, forward);
    status = cpu_check(rc, layer, "linear", err);
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

static enum status find_set(struct cpu *cpu, struct cpu_layer *layer, struct linear_set **set,
                            struct err *err)
{
    struct linear *linear = layer->own;

    for (uint32_t i = 0; i < SETS_MAX; i++) {
        *set = &linear->sets[i];
        if ((*set)->n == cpu->n)
            return STATUS_OK;
    }
    *set = &linear->sets[linear->set_next];
    linear->set_next = (linear->set_next + 1) % SETS_MAX;
    close_set(*set);
    return make_set(cpu, layer, *set, cpu->n, err);
}

static enum status linear_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    const struct cpu_tensor *tensors = layer->tensors;
    struct linear_set *set;
    enum status status;

    if (layer->in->blocked && layer->out.dims[0] <= OWN_OUTPUTS_MAX) {
        cpu->kernels->linear(layer->in->data, tensors[0].param,
                             layer->graph->has_bias ? tensors[1].param : NULL, cpu->n,
                             layer->in->image_size, layer->out.dims[0], layer->out.data);
        return STATUS_OK;
    }
    status = find_set(cpu, layer, &set, err);
    return status == STATUS_OK ? cpu_prim_run(cpu, layer, &set->forward, err) : status;
}

static enum status linear_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                   struct err *err)
{
    struct linear_set *set;
    enum status status = find_set(cpu, layer, &set, err);

    (void)grad_scale;
    if (status == STATUS_OK && layer->in->grad != NULL) {
        cpu_prim_point(&set->data, DNNL_ARG_DIFF_SRC, layer->in->grad);
        status = cpu_prim_run(cpu, layer, &set->data, err);
    }
    if (status == STATUS_OK)
        status = cpu_prim_run(cpu, layer, &set->weights, err);
    return status;
}

const struct cpu_op cpu_op_linear = {linear_open, linear_close, linear_forward, linear_backward};
