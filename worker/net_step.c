/* A step: the walk over the layers, buckets, the optimizer. Everything is queued on the backend;
 * nothing here looks at what it computes. */
#include <assert.h>
#include <stdio.h>

#include "worker/net_parts.h"

static enum status check_labels(const struct net *net, const int64_t *labels, uint32_t n,
                                struct err *err)
{
    uint32_t classes = net->graph->layers[net->graph->layer_count - 1].out.dims[0];

    for (uint32_t i = 0; i < n; i++)
        if (labels[i] < 0 || labels[i] >= (int64_t)classes)
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "image %u of the batch: label %lld is not one of the %u classes", i,
                           (long long)labels[i], classes);
    return STATUS_OK;
}

/* The low copies of parameters that somebody wrote. */
static void refresh_low(struct net *net)
{
    if (net->low == NULL || !net->low_is_stale)
        return;
    for (uint32_t i = 0; i < net->graph->tensor_count; i++) {
        const struct backend_param param = net_param(net, i);

        if (param.low != NULL)
            net->backend->refresh(net->state, &param);
    }
    net->low_is_stale = false;
}

void net_step_whole(struct net *net)
{
    net->backend->step_whole(net->state);
}

void net_drop_records(struct net *net)
{
    if (net->backend->drop_records != NULL)
        net->backend->drop_records(net->state);
}

bool net_reduces(const struct net *net)
{
    return net->backend->reduces != NULL && net->backend->reduces(net->state);
}

void net_step_reduce(struct net *net)
{
    assert(net_reduces(net));
    net->backend->step_reduce(net->state);
}

bool net_takes_bytes(const struct net *net)
{
    return net->backend->takes_bytes;
}

enum status net_forward(struct net *net, const float *images, const int64_t *labels, uint32_t n,
                        bool training, struct net_result *result, struct err *err)
{
    const struct net_images floats = {images, NULL};

    return net_forward_images(net, &floats, labels, n, training, result, err);
}

enum status net_forward_images(struct net *net, const struct net_images *images,
                               const int64_t *labels, uint32_t n, bool training,
                               struct net_result *result, struct err *err)
{
    enum status status = check_labels(net, labels, n, err);

    assert(n > 0 && !(training && net->evaluate_only));
    assert((images->floats == NULL) != (images->bytes == NULL));
    assert(images->bytes == NULL || net_takes_bytes(net));

    net->trained_forward = false;
    refresh_low(net);
    if (status == STATUS_OK)
        status = net->backend->step_begin(net->state, images, labels, n, training, err);
    for (uint32_t i = 0; status == STATUS_OK && i < net->graph->layer_count; i++)
        status = net->backend->layer_forward(net->state, i, err);
    if (status != STATUS_OK)
        return status;
    net->trained_forward = training;
    return result != NULL ? net->backend->result(net->state, result, err) : STATUS_OK;
}

/* One bucket is complete; what was kept of it is used up. */
static void join_kept(struct net *net, uint32_t index)
{
    const struct backend_span kept = {net->kept + net->buckets[index].at, net->buckets[index].count,
                                      GRAPH_F32};

    net->backend->add(net->state, &net->spans[index], &kept, true);
}

void net_grads_keep(struct net *net)
{
    assert(net->kept != NULL);
    for (uint32_t b = 0; b < net->graph->bucket_count; b++) {
        const struct backend_span kept = {net->kept + net->buckets[b].at, net->buckets[b].count,
                                          GRAPH_F32};

        net->backend->add(net->state, &kept, &net->spans[b], false);
    }
}

void net_grads_join(struct net *net)
{
    assert(net->kept != NULL);
    net->joins_kept = true;
}

enum status net_backward(struct net *net, float grad_scale, net_bucket_ready ready, void *user,
                         struct err *err)
{
    uint32_t next = 0;

    assert(net->trained_forward); /* values of a training forward are what backward needs */
    net->trained_forward = false; /* and it uses them up */

    for (uint32_t i = net->graph->layer_count; i-- > 0;) {
        enum status status = net->backend->layer_backward(net->state, i, grad_scale, err);

        if (status != STATUS_OK)
            return status;
        for (; next < net->graph->bucket_count && net->bucket_layer[next] >= i; next++) {
            if (net->joins_kept)
                join_kept(net, next);
            net->backend->bucket_ready(net->state, next, &net->spans[next]);
            if (ready != NULL)
                ready(user, next);
        }
    }
    net->joins_kept = false;
    assert(next == net->graph->bucket_count);
    return STATUS_OK;
}

static void look_for_infinities(struct net *net)
{
    if (net->is_scale_dynamic)
        net->backend->finite(net->state, net->spans, net->graph->bucket_count, net->scaler);
}

void net_clip(struct net *net, const struct net_clip *clip)
{
    assert(!net->evaluate_only);
    look_for_infinities(net); /* before one is clipped to a number */
    net->backend->clip(net->state, net->spans, net->graph->bucket_count, clip, net->scaler);
}

void net_update(struct net *net, const struct optim *optim)
{
    assert(!net->evaluate_only);
    for (uint32_t s = 0; s < OPTIM_STATES; s++)
        assert((net->states[s] != NULL) == optim_uses(optim, s));
    look_for_infinities(net);
    net->backend->update(net->state, net->updates, net->update_count, optim, net->scaler);
    net->backend->scaler_end(net->state, net->scaler,
                             optim_uses(optim, OPTIM_MOMENTUM) && optim->momentum > 0.0F);
    net->backend->step_end(net->state, net->scaler);
}

enum status net_outcome_take(struct net *net, bool wait, struct net_outcome *outcome, bool *taken,
                             struct err *err)
{
    return net->backend->outcome_take(net->state, wait, outcome, taken, err);
}

void net_describe_nonfinite(struct net *net, char *text, size_t byte_limit)
{
    uint32_t layer = net->backend->first_nonfinite(net->state);

    text[0] = '\0';
    if (layer != GRAPH_NONE) {
        (void)snprintf(text, byte_limit, "the output of layer %s", net->graph->layers[layer].name);
        return;
    }
    for (uint32_t i = net->graph->tensor_count; i-- > 0;) {
        struct backend_span grad;

        if (!net->tensors[i].trainable)
            continue;
        grad = net_grad_span(net, i);
        if (net->backend->is_finite(net->state, &grad))
            continue;
        (void)snprintf(text, byte_limit, "the gradient of %s", net->tensors[i].name);
        return;
    }
}

bool net_low_layer(const struct net *net, uint32_t index, struct net_low_layer *low)
{
    for (uint32_t i = 0; i < net->graph->layer_count; i++) {
        const struct graph_layer *layer = &net->graph->layers[i];

        if ((layer->op != GRAPH_CONV2D && layer->op != GRAPH_LINEAR) ||
            layer->out.dtype == GRAPH_F32 || index-- > 0)
            continue;
        *low = (struct net_low_layer){layer->name, layer->out.dtype, net->backend->stores_types};
        if (net->backend->computes_low != NULL)
            low->is_computed = net->backend->computes_low(net->state, i);
        return true;
    }
    return false;
}

bool net_profile(const struct net *net, uint32_t index, struct net_profile *profile)
{
    return net->backend->profile(net->state, index, profile);
}

void net_profile_set(struct net *net, bool is_on)
{
    if (net->backend->profile_set != NULL)
        net->backend->profile_set(net->state, is_on);
}

const struct graph *net_graph(const struct net *net)
{
    return net->graph;
}

bool net_stores_types(const struct net *net)
{
    return net->backend->stores_types;
}
