/* Copies and views of a net's memory for the host, and the hash of its layout. */
#include <assert.h>
#include <string.h>

#include <openssl/evp.h>

#include "worker/graph/hash.h"
#include "worker/net/internal.h"

enum status net_tensor_read(struct net *net, uint32_t index, float *values, struct err *err)
{
    assert(index < net->graph->tensor_count);
    return net->backend->tensor_unpack(net->state, index, net->params + net->slots[index].param_at,
                                       GRAPH_F32, values, err);
}

enum status net_tensor_write(struct net *net, uint32_t index, const float *values, struct err *err)
{
    const struct backend_param param = net_param(net, index);
    enum status status;

    assert(index < net->graph->tensor_count);
    status = net->backend->tensor_pack(net->state, index, values, param.param, err);
    if (status == STATUS_OK)
        net->backend->refresh(net->state, &param);
    return status;
}

static float *state_of(const struct net *net, enum optim_state state, uint32_t index)
{
    assert(index < net->graph->tensor_count && net->tensors[index].trainable);
    assert(!net->evaluate_only && net->states[state] != NULL);
    return net->states[state] + net->slots[index].grad_at;
}

enum status net_grad_read(struct net *net, uint32_t index, float *values, struct err *err)
{
    const struct backend_span span = net_grad_span(net, index);

    return net->backend->tensor_unpack(net->state, index, span.memory, span.dtype, values, err);
}

bool net_has_state(struct net *net, enum optim_state state)
{
    const struct scaler scaler = net_scaler(net);

    return net->states[state] != NULL && optim_is_set(state, &scaler);
}

enum status net_optim_read(struct net *net, enum optim_state state, uint32_t index, float *values,
                           struct err *err)
{
    return net->backend->tensor_unpack(net->state, index, state_of(net, state, index), GRAPH_F32,
                                       values, err);
}

enum status net_optim_write(struct net *net, enum optim_state state, uint32_t index,
                            const float *values, struct err *err)
{
    struct scaler scaler = net_scaler(net);
    enum status status = STATUS_OK;

    scaler.has_momentum |= state == OPTIM_MOMENTUM;
    status = net->backend->memory_write(net->state, net->scaler, &scaler, sizeof scaler, err);
    if (status != STATUS_OK)
        return status;
    return net->backend->tensor_pack(net->state, index, values, state_of(net, state, index), err);
}

/* A failure of the device is reported by the next step. */
struct scaler net_scaler(struct net *net)
{
    struct scaler scaler = {0};

    (void)net->backend->memory_read(net->state, net->scaler, &scaler, sizeof scaler, NULL);
    return scaler;
}

void net_scaler_write(struct net *net, const struct scaler *scaler)
{
    struct scaler now = net_scaler(net);

    now.scale = scaler->scale;
    now.unskipped = scaler->unskipped;
    now.skipped_in_a_row = scaler->skipped_in_a_row;
    now.applied = scaler->applied;
    (void)net->backend->memory_write(net->state, net->scaler, &now, sizeof now, NULL);
}

static struct backend_span part_span(const struct net *net, enum net_part part)
{
    const size_t at = part == NET_BUFFERS ? net->buffer_at : 0;

    return (struct backend_span){net->params + at, net->param_count - at, GRAPH_F32};
}

enum status net_state_open(struct net *net, enum net_part part, struct net_view *view,
                           struct err *err)
{
    const struct backend_span span = part_span(net, part);

    assert(!net->state_open); /* the backend has one copy for all views of the state */
    net->state_open = true;
    view->count = span.count;
    return net->backend->view_open(net->state, &span, GRAPH_NONE, &view->values, err);
}

enum status net_state_close(struct net *net, enum net_part part, const struct net_view *view,
                            struct err *err)
{
    const struct backend_span span = part_span(net, part);

    assert(net->state_open && view->count == span.count);
    net->state_open = false;
    net->half_is_stale = net->half_is_stale || part == NET_PARAMS;
    return net->backend->view_close(net->state, &span, GRAPH_NONE, view->values, err);
}

static void hash_tensor(const struct net *net, uint32_t index, EVP_MD_CTX *sha)
{
    const struct net_tensor *tensor = &net->tensors[index];
    const struct graph_tensor *typed = &net->graph->tensors[index];
    uint64_t words[BACKEND_LAYOUT_WORDS];
    uint32_t count = net->backend->tensor_layout(net->state, index, words);
    int ok = EVP_DigestUpdate(sha, tensor->name, strlen(tensor->name) + 1) &&
             EVP_DigestUpdate(sha, tensor->dims, sizeof tensor->dims) &&
             EVP_DigestUpdate(sha, &tensor->dim_count, sizeof tensor->dim_count) &&
             EVP_DigestUpdate(sha, &tensor->trainable, sizeof tensor->trainable) &&
             EVP_DigestUpdate(sha, &typed->dtype, sizeof typed->dtype) &&
             EVP_DigestUpdate(sha, &typed->grad_dtype, sizeof typed->grad_dtype) &&
             EVP_DigestUpdate(sha, &typed->has_master, sizeof typed->has_master) &&
             EVP_DigestUpdate(sha, words, count * sizeof words[0]);

    assert(ok);
    (void)ok;
}

/* Nets with the same parameters may differ in a stride or a residual edge. */
static void hash_layers(const struct net *net, EVP_MD_CTX *sha)
{
    uint8_t hash[32];
    int ok;

    graph_hash(net->graph, hash);
    ok = EVP_DigestUpdate(sha, hash, sizeof hash);
    assert(ok);
    (void)ok;
}

void net_hash(const struct net *net, uint32_t index, uint8_t hash[32])
{
    EVP_MD_CTX *sha = EVP_MD_CTX_new();
    int ok = sha != NULL && EVP_DigestInit_ex(sha, EVP_sha256(), NULL);

    assert(index == UINT32_MAX || index < net->graph->tensor_count);
    assert(ok); /* SHA-256 of memory: only out of memory could fail */
    if (index != UINT32_MAX)
        hash_tensor(net, index, sha);
    for (uint32_t i = 0; index == UINT32_MAX && i < net->graph->tensor_count; i++)
        hash_tensor(net, i, sha);
    if (index == UINT32_MAX)
        hash_layers(net, sha);
    ok = EVP_DigestFinal_ex(sha, hash, NULL);
    assert(ok);
    (void)ok;
    EVP_MD_CTX_free(sha);
}

enum status net_bucket_open(struct net *net, uint32_t index, struct net_view *view, struct err *err)
{
    assert(net->open_bucket == GRAPH_NONE); /* the backend has one copy for all buckets */
    net->open_bucket = index;
    view->count = net_bucket(net, index).count;
    return net->backend->view_open(net->state, &net->sums[index], index, &view->values, err);
}

enum status net_bucket_close(struct net *net, uint32_t index, const struct net_view *view,
                             struct err *err)
{
    assert(index == net->open_bucket && view->count == net->sums[index].count);
    net->open_bucket = GRAPH_NONE;
    return net->backend->view_close(net->state, &net->sums[index], index, view->values, err);
}
