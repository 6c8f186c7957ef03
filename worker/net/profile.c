/* What a net reports about itself. */
#include "worker/net/profile.h"

#include "worker/net/internal.h"

bool net_half_layer(const struct net *net, uint32_t index, struct net_half_layer *half)
{
    for (uint32_t i = 0; i < net->graph->layer_count; i++) {
        const struct graph_layer *layer = &net->graph->layers[i];

        if ((layer->op != GRAPH_CONV2D && layer->op != GRAPH_LINEAR) ||
            layer->out.dtype == GRAPH_F32 || index-- > 0)
            continue;
        *half = (struct net_half_layer){layer->name, layer->out.dtype, net->backend->stores_types};
        if (net->backend->computes_half != NULL)
            half->is_computed = net->backend->computes_half(net->state, i);
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

uint32_t net_threads(const struct net *net)
{
    return net->backend->threads != NULL ? net->backend->threads() : 0;
}

size_t net_bytes(const struct net *net)
{
    size_t bytes = net->param_count * sizeof(float), arenas = net->accumulate ? 1 : 0;

    for (uint32_t s = 0; s < OPTIM_STATES; s++)
        arenas += net->states[s] != NULL;
    for (uint32_t i = 0; net->half != NULL && i < net->graph->tensor_count; i++)
        if (net_has_half(net, i))
            bytes += net->slots[i].size * net_element_bytes(net, net->graph->tensors[i].dtype);
    if (!net->evaluate_only)
        bytes += net_grad_bytes(net) + arenas * net->grad_count * sizeof(float);
    return bytes + net->backend->bytes(net->state);
}
