/* Where every tensor, gradient and bucket of a net lives in its arenas.
 *
 * Parameters: trainable tensors in forward order, then the buffers. Gradients: in the order in
 * which backward completes them, cut into buckets; all gradients of a bucket have one type.
 * Optimizer states are at the offsets of the gradients. */
#include <assert.h>
#include <string.h>

#include "worker/net/internal.h"

#define ARENA_ALIGN 16 /* elements: a cache line of fp32, 32 bytes of a 16-bit type */

static size_t align_up(size_t count)
{
    return (count + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
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
            assert(net->slots[i].size >= graph->tensors[i].count); /* padding comes on top */
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

bool net_has_half(const struct net *net, uint32_t index)
{
    const struct graph_tensor *tensor = &net->graph->tensors[index];

    assert(index < net->graph->tensor_count);
    if (net->backend->stores_types)
        return tensor->trainable && tensor->dtype != GRAPH_F32;
    return tensor->has_master;
}

size_t net_element_bytes(const struct net *net, enum graph_dtype dtype)
{
    return net->backend->stores_types ? graph_dtype_bytes(dtype) : sizeof(float);
}

size_t net_grad_bytes(const struct net *net)
{
    size_t bytes = 0;

    for (uint32_t b = 0; b < net->graph->bucket_count; b++)
        bytes += net->buckets[b].count * net_element_bytes(net, net->buckets[b].dtype);
    return bytes;
}

void net_grad_arena(const struct net *net, void **memory, size_t *bytes)
{
    *memory = net->grads;
    *bytes = net->grads != NULL ? net_grad_bytes(net) : 0;
}

/* Buckets as counts; net_place_buckets gives them memory. */
static void cut_buckets(struct net *net)
{
    const struct graph *graph = net->graph;

    for (uint32_t b = 0; b < graph->bucket_count; b++) {
        const struct graph_bucket *bucket = &graph->buckets[b];
        uint32_t last = graph->grad_order[bucket->order_first + bucket->order_count - 1];
        const struct slot *first = &net->slots[graph->grad_order[bucket->order_first]];
        size_t end = net->slots[last].grad_at + align_up(net->slots[last].size);

        assert(bucket->order_count > 0);
        assert(first->grad_at == (b > 0 ? net->buckets[b - 1].at + net->buckets[b - 1].count : 0));
        net->buckets[b] =
            (struct net_bucket){first->grad_at, end - first->grad_at, graph->buckets[b].dtype};
        net->bucket_layer[b] = graph->tensors[last].layer;
    }
}

void net_place_buckets(struct net *net)
{
    char *at = net->grads;

    assert(net->grads != NULL && net->graph->bucket_count > 0);
    for (uint32_t b = 0; b < net->graph->bucket_count; b++) {
        const struct net_bucket *bucket = &net->buckets[b];

        net->spans[b] = (struct backend_span){at, bucket->count, bucket->dtype};
        at += bucket->count * net_element_bytes(net, bucket->dtype);
        net->sums_kept = net->sums_kept || (net->accumulate && bucket->dtype != GRAPH_F32);
    }
    for (uint32_t b = 0; b < net->graph->bucket_count; b++)
        net->sums[b] = net->sums_kept ? (struct backend_span){net->kept + net->buckets[b].at,
                                                              net->buckets[b].count, GRAPH_F32}
                                      : net->spans[b];
}

static struct backend_span span_in(const struct net *net, const struct backend_span *spans,
                                   uint32_t index)
{
    const struct slot *slot = &net->slots[index];
    uint32_t b = 0;
    size_t at;

    assert(net->graph->tensors[index].trainable && !net->evaluate_only);
    while (slot->grad_at >= net->buckets[b].at + net->buckets[b].count)
        b++;
    at = (slot->grad_at - net->buckets[b].at) * net_element_bytes(net, spans[b].dtype);
    return (struct backend_span){(char *)spans[b].memory + at, slot->size, spans[b].dtype};
}

struct backend_span net_written_span(const struct net *net, uint32_t index)
{
    return span_in(net, net->spans, index);
}

struct backend_span net_grad_span(const struct net *net, uint32_t index)
{
    return span_in(net, net->sums, index);
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

    if (net_has_half(net, index))
        param.half = (char *)net->half + slot->param_at * net_element_bytes(net, tensor->dtype);
    if (tensor->trainable && !net->evaluate_only) {
        param.grad = net_grad_span(net, index);
        for (uint32_t s = 0; s < OPTIM_STATES; s++)
            param.states[s] = net->states[s] != NULL ? net->states[s] + slot->grad_at : NULL;
    }
    return param;
}

void net_lay_out(struct net *net)
{
    describe_tensors(net);
    place_tensors(net);
    if (!net->evaluate_only)
        cut_buckets(net);
}

uint32_t net_tensor_count(const struct net *net)
{
    return net->graph->tensor_count;
}

const struct net_tensor *net_tensor(const struct net *net, uint32_t index)
{
    assert(index < net->graph->tensor_count);
    return &net->tensors[index];
}

uint32_t net_bucket_count(const struct net *net)
{
    return net->evaluate_only ? 0 : net->graph->bucket_count;
}

struct net_bucket net_bucket(const struct net *net, uint32_t index)
{
    struct net_bucket bucket;

    assert(index < net_bucket_count(net));
    bucket = net->buckets[index];
    bucket.dtype = net->sums[index].dtype;
    return bucket;
}
