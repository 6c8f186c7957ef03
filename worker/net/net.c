/* Making a net: passes over the graph, the backend, memory; and freeing it. */
#include <assert.h>
#include <stdlib.h>

#include "worker/net/internal.h"
#include "worker/graph/pass.h"

#define BUCKET_FIRST_BYTES (UINT64_C(1) << 20)
#define BUCKET_BYTES (UINT64_C(25) << 20)

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
        status = pass_fuse(typed, net->backend->adds_half, &fused, err);
    if (status == STATUS_OK && net->backend->rounds_norms)
        pass_fuse_adds(fused);
    if (status == STATUS_OK && net->backend->fuses_pools)
        pass_fuse_pools(fused);
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

static bool make_half(struct net *net)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < net->graph->tensor_count; i++)
        if (net_has_half(net, i))
            bytes = net->buffer_at * net_element_bytes(net, net->graph->tensors[i].dtype);
    if (bytes == 0)
        return true;
    net->half = net->backend->memory_new(net->state, bytes);
    net->half_is_stale = true;
    return net->half != NULL;
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

/* Allocates net->grads, zeroed. Memory that is not the backend's is zeroed through the backend,
 * piece by piece. */
static bool make_grads(struct net *net, const struct net_memory *memory)
{
    static const char zeros[1 << 16];
    const size_t bytes = net_grad_bytes(net);
    size_t at = 0;

    net->grads = memory != NULL ? memory->make(memory->context, bytes) : NULL;
    if (net->grads == NULL) {
        net->grads = net->backend->memory_new(net->state, bytes);
        return net->grads != NULL;
    }
    net->grad_memory = *memory;
    while (at < bytes) {
        const size_t piece = bytes - at < sizeof zeros ? bytes - at : sizeof zeros;

        if (net->backend->memory_write(net->state, (char *)net->grads + at, zeros, piece, NULL) !=
            STATUS_OK)
            return false;
        at += piece;
    }
    return true;
}

static bool make_arenas(struct net *net, const struct net_options *options)
{
    const size_t floats = net->grad_count * sizeof(float);

    net->params = net->backend->memory_new(net->state, net->param_count * sizeof(float));
    net->scaler = net->backend->memory_new(net->state, sizeof *net->scaler);
    if (net->params == NULL || net->scaler == NULL || !make_half(net))
        return false;
    if (net->evaluate_only)
        return true;
    if (!make_grads(net, options->grad_memory))
        return false;
    if (net->accumulate)
        net->kept = net->backend->memory_new(net->state, floats);
    return make_states(net, options->optim) && (!net->accumulate || net->kept != NULL);
}

static void bind_tensors(struct net *net)
{
    for (uint32_t i = 0; i < net->graph->tensor_count; i++) {
        const struct backend_param param = net_param(net, i);
        void *const grad = param.grad.memory != NULL ? net_written_span(net, i).memory : NULL;

        net->backend->bind(net->state, i, param.param, param.half, grad);
        if (param.grad.memory != NULL)
            net->updates[net->update_count++] = param;
    }
    assert(net->evaluate_only || net->update_count == net->graph->grad_count);
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
    net->sums = calloc(buckets, sizeof *net->sums);
    net->bucket_layer = calloc(buckets, sizeof *net->bucket_layer);
    return net->tensors != NULL && net->slots != NULL && net->updates != NULL &&
           net->buckets != NULL && net->spans != NULL && net->sums != NULL &&
           net->bucket_layer != NULL;
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
    net_lay_out(net);
    if (!make_arenas(net, options))
        return out_of_memory(err);
    if (!net->evaluate_only)
        net_place_buckets(net);
    bind_tensors(net);
    return start_scaler(net, options->amp, err);
}

enum status net_new(struct net **net, const struct graph *graph, const struct net_options *options,
                    struct err *err)
{
    enum status status;

    assert(options->batch_max > 0);
    assert(options->label_smoothing >= 0.0F && options->label_smoothing <= 1.0F);

    *net = calloc(1, sizeof **net);
    if (*net == NULL)
        return out_of_memory(err);
    (*net)->backend = options->backend != NULL ? options->backend : &backend_cpu;
    (*net)->open_bucket = GRAPH_NONE;
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
        if (n->grad_memory.give_back == NULL)
            n->backend->memory_free(n->state, n->grads);
        for (uint32_t s = 0; s < OPTIM_STATES; s++)
            n->backend->memory_free(n->state, n->states[s]);
        n->backend->memory_free(n->state, n->kept);
        n->backend->memory_free(n->state, n->half);
        n->backend->memory_free(n->state, n->scaler);
        n->backend->close(&n->state); /* waits for what still works on gradients */
    }
    if (n->grad_memory.give_back != NULL)
        n->grad_memory.give_back(n->grad_memory.context, n->grads);
    free(n->tensors);
    free(n->slots);
    free(n->updates);
    free(n->buckets);
    free(n->spans);
    free(n->sums);
    free(n->bucket_layer);
    graph_free(&n->graph);
    free(n);
    *net = NULL;
}
