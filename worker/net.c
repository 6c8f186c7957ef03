/* The executor's arenas: made, cut into tensors and buckets, given back. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "worker/net_parts.h"
#include "worker/pass.h"
#include "worker/pass_amp.h"

#define ARENA_ALIGN 16 /* elements: a cache line of fp32, 32 bytes of a 16-bit type */

#define BUCKET_FIRST_BYTES (UINT64_C(1) << 20)
#define BUCKET_BYTES (UINT64_C(25) << 20)

static size_t align_up(size_t count)
{
    return (count + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

static enum status out_of_memory(struct err *err)
{
    return err_set(err, STATUS_MEMORY, 0, "network: out of memory");
}

static enum status run_passes(struct net *net, const struct graph *graph,
                              const struct net_options *options, struct err *err)
{
    uint64_t first = options->bucket_first_bytes, bytes = options->bucket_bytes;
    const struct amp none = amp_none();
    struct graph *typed = NULL, *fused = NULL;
    enum status status = graph_check(graph, err);

    if (status == STATUS_OK)
        status = pass_amp(graph, options->amp != NULL ? options->amp : &none, &typed, err);
    if (status == STATUS_OK)
        status = pass_fuse(typed, net->backend->adds_low, &fused, err);
    if (status == STATUS_OK)
        status = pass_buckets(fused, first != 0 ? first : BUCKET_FIRST_BYTES,
                              bytes != 0 ? bytes : BUCKET_BYTES, &net->graph, err);
    if (status == STATUS_OK && options->graph_seen != NULL) {
        options->graph_seen(options->graph_seen_user, "model", graph);
        options->graph_seen(options->graph_seen_user, "amp", typed);
        options->graph_seen(options->graph_seen_user, "fuse", fused);
        options->graph_seen(options->graph_seen_user, "buckets", net->graph);
    }
    graph_free(&typed);
    graph_free(&fused);
    return status;
}

static void describe_tensors(struct net *net)
{
    for (uint32_t i = 0; i < net->graph->tensor_count; i++) {
        const struct graph_tensor *from = &net->graph->tensors[i];
        struct net_tensor *to = &net->tensors[i];

        *to = (struct net_tensor){
            .name = from->name,
            .dim_count = from->dim_count,
            .count = from->count,
            .trainable = from->trainable,
        };
        memcpy(to->dims, from->dims, sizeof to->dims);
    }
}

/* Trainable tensors in forward order, then the buffers; gradients in the order of the buckets. */
static void place_tensors(struct net *net)
{
    const struct graph *graph = net->graph;
    size_t at = 0;

    for (int trainable = 1; trainable >= 0; trainable--) {
        if (!trainable)
            net->buffer_at = at;
        for (uint32_t i = 0; i < graph->tensor_count; i++) {
            if (graph->tensors[i].trainable != (trainable != 0))
                continue;
            net->slots[i].param_at = at;
            net->slots[i].size = net->backend->tensor_size(net->state, i);
            at += align_up(net->slots[i].size);
        }
    }
    net->param_count = at;

    net->grad_count = 0;
    for (uint32_t i = 0; i < graph->grad_count; i++) {
        struct slot *slot = &net->slots[graph->grad_order[i]];

        slot->grad_at = net->grad_count;
        net->grad_count += align_up(slot->size);
    }
}

/* Whether a copy in the tensor's type stands beside its fp32 values. */
static bool has_low(const struct net *net, uint32_t index)
{
    const struct graph_tensor *tensor = &net->graph->tensors[index];

    if (net->backend->stores_types)
        return tensor->trainable && tensor->dtype != GRAPH_F32;
    return tensor->has_master;
}

static size_t element_bytes(const struct net *net, enum graph_dtype dtype)
{
    return net->backend->stores_types ? graph_dtype_bytes(dtype) : sizeof(float);
}

static bool make_low(struct net *net)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < net->graph->tensor_count; i++)
        if (has_low(net, i))
            bytes = net->buffer_at * element_bytes(net, net->graph->tensors[i].dtype);
    if (bytes == 0)
        return true;
    net->low = net->backend->memory_new(net->state, bytes);
    net->low_is_stale = true;
    return net->low != NULL;
}

/* One type follows the other in the order of the buckets. */
static size_t grad_bytes(const struct net *net)
{
    size_t bytes = 0;

    for (uint32_t b = 0; b < net->graph->bucket_count; b++)
        bytes += net->buckets[b].count * element_bytes(net, net->buckets[b].dtype);
    return bytes;
}

void net_grad_arena(const struct net *net, void **memory, size_t *bytes)
{
    *memory = net->grads;
    *bytes = net->grads != NULL ? grad_bytes(net) : 0;
}

static bool make_states(struct net *net, const struct optim *optim)
{
    const struct optim sgd = {.kind = OPTIM_SGD};

    for (uint32_t s = 0; s < OPTIM_STATES; s++) {
        if (!optim_uses(optim != NULL ? optim : &sgd, s))
            continue;
        net->states[s] = net->backend->memory_new(net->state, net->grad_count * sizeof(float));
        if (net->states[s] == NULL)
            return false;
    }
    return true;
}

static bool make_arenas(struct net *net, const struct optim *optim)
{
    const size_t floats = net->grad_count * sizeof(float);

    net->params = net->backend->memory_new(net->state, net->param_count * sizeof(float));
    net->scaler = net->backend->memory_new(net->state, sizeof *net->scaler);
    if (net->params == NULL || net->scaler == NULL || !make_low(net))
        return false;
    if (net->evaluate_only)
        return true;
    net->grads = net->backend->memory_new(net->state, grad_bytes(net));
    if (net->accumulate)
        net->kept = net->backend->memory_new(net->state, floats);
    return net->grads != NULL && make_states(net, optim) && (!net->accumulate || net->kept != NULL);
}

/* Buckets as counts alone; their memory comes behind. */
static void cut_buckets(struct net *net)
{
    const struct graph *graph = net->graph;

    for (uint32_t b = 0; b < graph->bucket_count; b++) {
        const struct graph_bucket *bucket = &graph->buckets[b];
        uint32_t last = graph->grad_order[bucket->order_first + bucket->order_count - 1];
        const struct slot *first = &net->slots[graph->grad_order[bucket->order_first]];
        size_t end = net->slots[last].grad_at + align_up(net->slots[last].size);

        net->buckets[b] =
            (struct net_bucket){first->grad_at, end - first->grad_at, graph->buckets[b].dtype};
        net->bucket_layer[b] = graph->tensors[last].layer;
    }
}

static void place_buckets(struct net *net)
{
    char *at = net->grads;

    for (uint32_t b = 0; b < net->graph->bucket_count; b++) {
        const struct net_bucket *bucket = &net->buckets[b];

        net->spans[b] = (struct backend_span){at, bucket->count, bucket->dtype};
        at += bucket->count * element_bytes(net, bucket->dtype);
    }
}

struct backend_span net_grad_span(const struct net *net, uint32_t index)
{
    const struct slot *slot = &net->slots[index];
    uint32_t b = 0;
    size_t at;

    assert(net->graph->tensors[index].trainable && !net->evaluate_only);
    while (slot->grad_at >= net->buckets[b].at + net->buckets[b].count)
        b++;
    at = (slot->grad_at - net->buckets[b].at) * element_bytes(net, net->buckets[b].dtype);
    return (struct backend_span){(char *)net->spans[b].memory + at, slot->size,
                                 net->buckets[b].dtype};
}

struct backend_param net_param(const struct net *net, uint32_t index)
{
    const struct graph_tensor *tensor = &net->graph->tensors[index];
    const struct slot *slot = &net->slots[index];
    struct backend_param param = {
        .param = net->params + slot->param_at,
        .count = slot->size,
        .dtype = tensor->dtype,
        .has_master = tensor->has_master,
        .adapts = tensor->dim_count > 1,
    };

    if (has_low(net, index))
        param.low = (char *)net->low + slot->param_at * element_bytes(net, tensor->dtype);
    if (tensor->trainable && !net->evaluate_only) {
        param.grad = net_grad_span(net, index);
        for (uint32_t s = 0; s < OPTIM_STATES; s++)
            param.states[s] = net->states[s] != NULL ? net->states[s] + slot->grad_at : NULL;
    }
    return param;
}

static void bind_tensors(struct net *net)
{
    for (uint32_t i = 0; i < net->graph->tensor_count; i++) {
        const struct backend_param param = net_param(net, i);

        net->backend->bind(net->state, i, param.param, param.low, param.grad.memory);
        if (param.grad.memory != NULL)
            net->updates[net->update_count++] = param;
    }
}

static enum status start_scaler(struct net *net, const struct amp *amp, struct err *err)
{
    const struct amp none = amp_none();
    struct scaler scaler;

    scaler_init(&scaler, amp != NULL ? &amp->scaler : &none.scaler);
    net->is_scale_dynamic = amp != NULL && amp->scaler.is_dynamic;
    net->backend->bind_scaler(net->state, net->scaler);
    return net->backend->memory_write(net->state, net->scaler, &scaler, sizeof scaler, err);
}

static bool make_tables(struct net *net)
{
    const size_t tensors = (size_t)net->graph->tensor_count + 1;
    const size_t buckets = (size_t)net->graph->bucket_count + 1;

    net->tensors = calloc(tensors, sizeof *net->tensors);
    net->slots = calloc(tensors, sizeof *net->slots);
    net->updates = calloc(tensors, sizeof *net->updates);
    net->buckets = calloc(buckets, sizeof *net->buckets);
    net->spans = calloc(buckets, sizeof *net->spans);
    net->bucket_layer = calloc(buckets, sizeof *net->bucket_layer);
    return net->tensors != NULL && net->slots != NULL && net->updates != NULL &&
           net->buckets != NULL && net->spans != NULL && net->bucket_layer != NULL;
}

static enum status build(struct net *net, const struct graph *graph,
                         const struct net_options *options, struct err *err)
{
    enum status status = run_passes(net, graph, options, err);

    if (status != STATUS_OK)
        return status;
    if (!make_tables(net))
        return out_of_memory(err);

    status = net->backend->open(&net->state, net->graph, options, err);
    if (status != STATUS_OK)
        return status;
    describe_tensors(net);
    place_tensors(net);
    if (!net->evaluate_only)
        cut_buckets(net);
    if (!make_arenas(net, options->optim))
        return out_of_memory(err);
    if (!net->evaluate_only)
        place_buckets(net);
    bind_tensors(net);
    return start_scaler(net, options->amp, err);
}

enum status net_new(struct net **net, const struct graph *graph, const struct net_options *options,
                    struct err *err)
{
    enum status status;

    assert(options->batch_max > 0);

    *net = calloc(1, sizeof **net);
    if (*net == NULL)
        return out_of_memory(err);
    (*net)->backend = options->backend != NULL ? options->backend : &backend_cpu;
    (*net)->evaluate_only = options->evaluate_only;
    (*net)->accumulate = options->accumulate && !options->evaluate_only;
    status = build(*net, graph, options, err);
    if (status != STATUS_OK)
        net_free(net);
    return status;
}

void net_free(struct net **net)
{
    struct net *n = *net;

    if (n == NULL)
        return;
    if (n->state != NULL) {
        n->backend->memory_free(n->state, n->params);
        n->backend->memory_free(n->state, n->grads);
        for (uint32_t s = 0; s < OPTIM_STATES; s++)
            n->backend->memory_free(n->state, n->states[s]);
        n->backend->memory_free(n->state, n->kept);
        n->backend->memory_free(n->state, n->low);
        n->backend->memory_free(n->state, n->scaler);
        n->backend->close(&n->state);
    }
    free(n->tensors);
    free(n->slots);
    free(n->updates);
    free(n->buckets);
    free(n->spans);
    free(n->bucket_layer);
    graph_free(&n->graph);
    free(n);
    *net = NULL;
}

size_t net_bytes(const struct net *net)
{
    size_t bytes = net->param_count * sizeof(float), arenas = net->accumulate ? 1 : 0;

    for (uint32_t s = 0; s < OPTIM_STATES; s++)
        arenas += net->states[s] != NULL;
    for (uint32_t i = 0; net->low != NULL && i < net->graph->tensor_count; i++)
        if (has_low(net, i))
            bytes += net->slots[i].size * element_bytes(net, net->graph->tensors[i].dtype);
    if (!net->evaluate_only)
        bytes += grad_bytes(net) + arenas * net->grad_count * sizeof(float);
    return bytes + net->backend->bytes(net->state);
}
