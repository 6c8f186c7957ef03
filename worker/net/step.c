/* A step: the walk over the layers, the reducer, the optimizer. Everything is queued on the
 * backend; nothing here reads what it computes. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/net/internal.h"

/* Notes the current layer before it runs. A relaxed store is enough, since only people read it. */
static void note_walk(struct net *net, uint32_t layer, bool is_backward)
{
    atomic_store_explicit(&net->walk, 2 * layer + 2 + (is_backward ? 1U : 0U),
                          memory_order_relaxed);
}

static void note_end(struct net *net)
{
    atomic_store_explicit(&net->walk, 0, memory_order_relaxed);
}

void net_now(const struct net *net, char *text, size_t byte_limit)
{
    const uint32_t walk = atomic_load_explicit(&net->walk, memory_order_relaxed);
    const struct graph_layer *layer;

    text[0] = '\0';
    if (walk == 0)
        return;
    layer = &net->graph->layers[walk / 2 - 1];
    (void)snprintf(text, byte_limit, "%s %s (%s)", walk % 2 == 0 ? "forward" : "backward",
                   layer->name, graph_op_name(layer->op));
}

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

/* The 16-bit copies of the parameters, after the host has written parameters. */
static void refresh_half(struct net *net)
{
    if (net->half == NULL || !net->half_is_stale)
        return;
    for (uint32_t i = 0; i < net->graph->tensor_count; i++) {
        const struct backend_param param = net_param(net, i);

        if (param.half != NULL)
            net->backend->refresh(net->state, &param);
    }
    net->half_is_stale = false;
}

void net_set_reducer(struct net *net, const struct reducer *reducer)
{
    net->has_reducer = reducer != NULL;
    if (reducer == NULL)
        return;
    assert(reducer->begin != NULL && reducer->bucket_ready != NULL && reducer->finish != NULL);
    assert(reducer->prescale > 0.0F);
    assert(!net->evaluate_only);
    net->reducer = *reducer;
}

enum status net_device_reducer(struct net *net, const struct device_collective *collective,
                               struct reducer *reducer, struct err *err)
{
    assert(collective->sum != NULL && collective->prescale >= 0.0F &&
           collective->postscale >= 0.0F);
    if (net->backend->device_reducer == NULL)
        return err_set(err, STATUS_UNSUPPORTED, 0, "backend %s has no device that reduces",
                       net->backend->name);
    net->backend->device_reducer(net->state, collective, reducer);
    return STATUS_OK;
}

#define IMAGES_ALIGNMENT 64

void *net_images_new(struct net *net, size_t bytes)
{
    const size_t whole = (bytes + IMAGES_ALIGNMENT - 1) / IMAGES_ALIGNMENT * IMAGES_ALIGNMENT;

    return net->backend->images_new != NULL ? net->backend->images_new(net->state, whole)
                                            : aligned_alloc(IMAGES_ALIGNMENT, whole);
}

void net_images_free(struct net *net, void *memory)
{
    if (net->backend->images_free != NULL)
        net->backend->images_free(net->state, memory);
    else
        free(memory);
}

enum status net_images_settle(struct net *net, const void *memory, struct err *err)
{
    return net->backend->images_settle != NULL
               ? net->backend->images_settle(net->state, memory, err)
               : STATUS_OK;
}

uint32_t net_images_held(const struct net *net)
{
    return net->backend->images_held;
}

void net_step_graphable(struct net *net)
{
    if (!net->has_reducer || net->reducer.graphable)
        net->backend->step_graphable(net->state);
}

void net_drop_captures(struct net *net)
{
    if (net->backend->drop_captures != NULL)
        net->backend->drop_captures(net->state);
}

enum status net_forward(struct net *net, const float *images, const int64_t *labels, uint32_t n,
                        bool training, struct net_result *result, struct err *err)
{
    const struct net_images floats = {.floats = images};

    return net_forward_images(net, &floats, labels, n, training, result, err);
}

/* The sums of the previous step are still there, for readers of a step's gradients. Clears them by
 * adding them to gradients that backward will overwrite. */
static void drop_old_sums(struct net *net)
{
    if (!net->sums_are_old)
        return;
    net->sums_are_old = false;
    for (uint32_t b = 0; b < net->graph->bucket_count; b++)
        net->backend->add(net->state, &net->spans[b], &net->sums[b], true);
}

enum status net_forward_images(struct net *net, const struct net_images *images,
                               const int64_t *labels, uint32_t n, bool training,
                               struct net_result *result, struct err *err)
{
    enum status status = check_labels(net, labels, n, err);

    assert(n > 0 && !(training && net->evaluate_only));
    assert(!net->state_open); /* the step would not see what the view holds */
    assert((images->floats == NULL) != (images->bytes == NULL));
    assert(images->normal == NULL || images->bytes != NULL);

    net->trained_forward = false;
    refresh_half(net);
    if (status == STATUS_OK)
        status = net->backend->step_begin(net->state, images, labels, n, training, err);
    if (status == STATUS_OK && training)
        drop_old_sums(net);
    for (uint32_t i = 0; status == STATUS_OK && i < net->graph->layer_count; i++) {
        note_walk(net, i, false);
        status = net->backend->layer_forward(net->state, i, err);
    }
    note_end(net);
    if (status != STATUS_OK)
        return status;
    net->trained_forward = training;
    return result != NULL ? net->backend->result(net->state, result, err) : STATUS_OK;
}

static struct backend_span kept_span(const struct net *net, uint32_t index)
{
    return (struct backend_span){net->kept + net->buckets[index].at, net->buckets[index].count,
                                 GRAPH_F32};
}

/* Adds what was kept to the gradients of the last batch: for fp32 into the gradients themselves,
 * which empties the sum; otherwise into the sum. */
static void join_kept(struct net *net, uint32_t index)
{
    const struct backend_span kept = kept_span(net, index);

    if (net->sums_kept)
        net->backend->add(net->state, &kept, &net->spans[index], false);
    else
        net->backend->add(net->state, &net->spans[index], &kept, true);
}

void net_grads_keep(struct net *net)
{
    assert(net->kept != NULL && net->has_grads && !net->joins_kept);
    net->has_grads = false;
    for (uint32_t b = 0; b < net->graph->bucket_count; b++) {
        const struct backend_span kept = kept_span(net, b);

        net->backend->add(net->state, &kept, &net->spans[b], false);
    }
}

void net_grads_join(struct net *net)
{
    assert(net->kept != NULL && !net->joins_kept);
    net->joins_kept = true;
}

/* Bucket `index` has its last gradient. */
static enum status complete_bucket(struct net *net, uint32_t index, const struct reducer *reducer,
                                   struct err *err)
{
    if (net->joins_kept)
        join_kept(net, index);
    net->backend->bucket_ready(net->state, index, &net->sums[index]);
    return reducer != NULL ? reducer->bucket_ready(reducer->context, index, err) : STATUS_OK;
}

/* Every layer, the last one first; buckets as they complete. */
static enum status walk_back(struct net *net, float grad_scale, const struct reducer *reducer,
                             struct err *err)
{
    const uint32_t bucket_count = net->graph->bucket_count;
    enum status status = STATUS_OK;
    uint32_t next = 0;

    for (uint32_t i = net->graph->layer_count; i-- > 0 && status == STATUS_OK;) {
        note_walk(net, i, true);
        status = net->backend->layer_backward(net->state, i, grad_scale, err);
        while (status == STATUS_OK && next < bucket_count && net->bucket_layer[next] >= i)
            status = complete_bucket(net, next++, reducer, err);
    }
    note_end(net);
    assert(status != STATUS_OK || next == bucket_count);
    return status;
}

static enum status reduce_around(struct net *net, float grad_scale, const struct reducer *reducer,
                                 struct err *err)
{
    struct err why = {.text = ""};
    enum status status = reducer->begin(reducer->context, err), finished;

    if (status != STATUS_OK)
        return status;
    status = walk_back(net, grad_scale, reducer, err);
    finished = reducer->finish(reducer->context, &why);
    if (status != STATUS_OK || finished == STATUS_OK)
        return status;
    return err_set(err, finished, why.code, "%s", why.text);
}

static enum status backward(struct net *net, float grad_scale, const struct reducer *reducer,
                            struct err *err)
{
    const float scale = net->has_reducer ? grad_scale * net->reducer.prescale : grad_scale;
    enum status status;

    assert(net->trained_forward); /* backward reads the values of a training forward */
    net->trained_forward = false; /* once */
    net->has_grads = false;
    status = reducer != NULL ? reduce_around(net, scale, reducer, err)
                             : walk_back(net, scale, NULL, err);
    net->has_joined = net->joins_kept;
    net->joins_kept = false;
    if (status == STATUS_OK && net->backend->backward_end != NULL)
        status = net->backend->backward_end(net->state, err);
    net->has_grads = status == STATUS_OK;
    return status;
}

enum status net_backward(struct net *net, float grad_scale, struct err *err)
{
    return backward(net, grad_scale, NULL, err);
}

enum status net_backward_reduce(struct net *net, float grad_scale, struct err *err)
{
    return backward(net, grad_scale, net->has_reducer ? &net->reducer : NULL, err);
}

static void look_for_infinities(struct net *net)
{
    if (net->is_scale_dynamic)
        net->backend->finite(net->state, net->sums, net->graph->bucket_count, net->scaler);
}

void net_clip(struct net *net, const struct net_clip *clip)
{
    assert(net->has_grads && net->open_bucket == GRAPH_NONE);
    assert(net->has_joined || !net->sums_kept);
    look_for_infinities(net); /* first: clipping would make a number of an infinity */
    net->backend->clip(net->state, net->sums, net->graph->bucket_count, clip, net->scaler);
}

void net_update(struct net *net, const struct optim *optim)
{
    assert(net->has_grads && net->open_bucket == GRAPH_NONE);
    assert(net->has_joined || !net->sums_kept);
    net->sums_are_old = net->sums_kept;
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
