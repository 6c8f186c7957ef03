/* The executor: arenas, the walk over the layers, buckets, the optimizer step. */
#include "worker/net.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "worker/net_backend.h"
#include "worker/pass.h"
#include "worker/pass_amp.h"

#define ARENA_ALIGN 16 /* floats: one cache line */

#define BUCKET_FIRST_BYTES (UINT64_C(1) << 20)
#define BUCKET_BYTES (UINT64_C(25) << 20)

/* Where a tensor lives. Offsets and sizes in floats; a gradient has the momentum buffer at the same
 * offset. */
struct slot {
    size_t param_at, grad_at, size;
};

struct net {
    const struct backend *backend;
    void *state;
    struct graph *graph; /* ours, behind the passes */
    struct net_tensor *tensors;
    struct slot *slots;
    float *params, *grads, *momentum;
    float *kept; /* sums of inner steps, like grads; NULL: there are none */
    float *low;  /* copies of params in the types that layers compute with, where they have masters;
                    NULL: there are none */
    bool low_is_stale, is_scale_dynamic;
    struct scaler *scaler; /* the backend's memory */
    size_t param_count, buffer_at, grad_count;
    struct net_bucket *buckets;
    uint32_t *bucket_layer; /* the layer whose backward completes the bucket */
    bool evaluate_only, trained_forward;
    bool accumulate, joins_kept;
};

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
        status = pass_fuse(typed, &fused, err);
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

static bool has_masters(const struct net *net)
{
    for (uint32_t i = 0; i < net->graph->tensor_count; i++)
        if (net->graph->tensors[i].has_master)
            return true;
    return false;
}

static bool make_arenas(struct net *net)
{
    net->params = net->backend->memory_new(net->state, net->param_count * sizeof(float));
    net->scaler = net->backend->memory_new(net->state, sizeof *net->scaler);
    if (net->params == NULL || net->scaler == NULL)
        return false;
    if (has_masters(net)) {
        net->low = net->backend->memory_new(net->state, net->buffer_at * sizeof(float));
        net->low_is_stale = true;
        if (net->low == NULL)
            return false;
    }
    if (net->evaluate_only)
        return true;
    net->grads = net->backend->memory_new(net->state, net->grad_count * sizeof(float));
    net->momentum = net->backend->memory_new(net->state, net->grad_count * sizeof(float));
    if (net->accumulate)
        net->kept = net->backend->memory_new(net->state, net->grad_count * sizeof(float));
    return net->grads != NULL && net->momentum != NULL && (!net->accumulate || net->kept != NULL);
}

static void bind_tensors(struct net *net)
{
    for (uint32_t i = 0; i < net->graph->tensor_count; i++) {
        const struct slot *slot = &net->slots[i];
        bool has_grad = net->tensors[i].trainable && !net->evaluate_only;
        float *arena = net->graph->tensors[i].has_master ? net->low : net->params;

        net->backend->bind(net->state, i, arena + slot->param_at,
                           has_grad ? net->grads + slot->grad_at : NULL);
    }
}

static void cut_buckets(struct net *net)
{
    const struct graph *graph = net->graph;

    for (uint32_t b = 0; b < graph->bucket_count; b++) {
        const struct graph_bucket *bucket = &graph->buckets[b];
        uint32_t last = graph->grad_order[bucket->order_first + bucket->order_count - 1];
        const struct slot *first = &net->slots[graph->grad_order[bucket->order_first]];
        size_t end = net->slots[last].grad_at + align_up(net->slots[last].size);

        net->buckets[b] = (struct net_bucket){net->grads + first->grad_at, end - first->grad_at,
                                              graph->buckets[b].dtype};
        net->bucket_layer[b] = graph->tensors[last].layer;
    }
}

static void start_scaler(struct net *net, const struct amp *amp)
{
    const struct amp none = amp_none();

    scaler_init(net->scaler, amp != NULL ? &amp->scaler : &none.scaler);
    net->is_scale_dynamic = amp != NULL && amp->scaler.is_dynamic;
    net->backend->bind_scaler(net->state, net->scaler);
}

static enum status build(struct net *net, const struct graph *graph,
                         const struct net_options *options, struct err *err)
{
    enum status status = run_passes(net, graph, options, err);

    if (status != STATUS_OK)
        return status;
    net->tensors = calloc((size_t)net->graph->tensor_count + 1, sizeof *net->tensors);
    net->slots = calloc((size_t)net->graph->tensor_count + 1, sizeof *net->slots);
    net->buckets = calloc((size_t)net->graph->bucket_count + 1, sizeof *net->buckets);
    net->bucket_layer = calloc((size_t)net->graph->bucket_count + 1, sizeof *net->bucket_layer);
    if (net->tensors == NULL || net->slots == NULL || net->buckets == NULL ||
        net->bucket_layer == NULL)
        return out_of_memory(err);

    status = net->backend->open(&net->state, net->graph, options, err);
    if (status != STATUS_OK)
        return status;
    describe_tensors(net);
    place_tensors(net);
    if (!make_arenas(net))
        return out_of_memory(err);
    bind_tensors(net);
    if (!net->evaluate_only)
        cut_buckets(net);
    start_scaler(net, options->amp);
    return STATUS_OK;
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
        n->backend->memory_free(n->state, n->momentum);
        n->backend->memory_free(n->state, n->kept);
        n->backend->memory_free(n->state, n->low);
        n->backend->memory_free(n->state, n->scaler);
        n->backend->close(&n->state);
    }
    free(n->tensors);
    free(n->slots);
    free(n->buckets);
    free(n->bucket_layer);
    graph_free(&n->graph);
    free(n);
    *net = NULL;
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

enum status net_tensor_read(struct net *net, uint32_t index, float *values, struct err *err)
{
    assert(index < net->graph->tensor_count);
    return net->backend->tensor_unpack(net->state, index, net->params + net->slots[index].param_at,
                                       values, err);
}

enum status net_tensor_write(struct net *net, uint32_t index, const float *values, struct err *err)
{
    const struct graph_tensor *tensor = &net->graph->tensors[index];
    const struct slot *slot = &net->slots[index];
    float *stored = net->params + slot->param_at;
    enum status status;

    assert(index < net->graph->tensor_count);
    status = net->backend->tensor_pack(net->state, index, values, stored, err);
    if (tensor->has_master)
        net->low_is_stale = true;
    else if (status == STATUS_OK)
        net->backend->cast(net->state, stored, stored, slot->size, tensor->dtype);
    return status;
}

static size_t grad_at(const struct net *net, uint32_t index)
{
    assert(index < net->graph->tensor_count && net->tensors[index].trainable);
    assert(!net->evaluate_only);
    return net->slots[index].grad_at;
}

enum status net_grad_read(struct net *net, uint32_t index, float *values, struct err *err)
{
    return net->backend->tensor_unpack(net->state, index, net->grads + grad_at(net, index), values,
                                       err);
}

bool net_has_momentum(const struct net *net)
{
    return net->scaler->has_momentum != 0;
}

enum status net_momentum_read(struct net *net, uint32_t index, float *values, struct err *err)
{
    return net->backend->tensor_unpack(net->state, index, net->momentum + grad_at(net, index),
                                       values, err);
}

enum status net_momentum_write(struct net *net, uint32_t index, const float *values,
                               struct err *err)
{
    net->scaler->has_momentum = 1;
    return net->backend->tensor_pack(net->state, index, values, net->momentum + grad_at(net, index),
                                     err);
}

float *net_params(struct net *net, size_t *count)
{
    *count = net->param_count;
    net->low_is_stale = true; /* the caller may write */
    return net->params;
}

float *net_buffers(struct net *net, size_t *count)
{
    *count = net->param_count - net->buffer_at;
    return net->params + net->buffer_at;
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
    ok = EVP_DigestFinal_ex(sha, hash, NULL);
    assert(ok);
    (void)ok;
    EVP_MD_CTX_free(sha);
}

uint32_t net_bucket_count(const struct net *net)
{
    return net->graph->bucket_count;
}

struct net_bucket net_bucket(struct net *net, uint32_t index)
{
    assert(index < net->graph->bucket_count && !net->evaluate_only);
    return net->buckets[index];
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

/* The low copies of the masters, once after every change. */
static void refresh_low(struct net *net)
{
    if (net->low == NULL || !net->low_is_stale)
        return;
    for (uint32_t i = 0; i < net->graph->tensor_count; i++) {
        const struct graph_tensor *tensor = &net->graph->tensors[i];
        const struct slot *slot = &net->slots[i];

        if (tensor->has_master)
            net->backend->cast(net->state, net->params + slot->param_at, net->low + slot->param_at,
                               slot->size, tensor->dtype);
    }
    net->low_is_stale = false;
}

enum status net_forward(struct net *net, const float *images, const int64_t *labels, uint32_t n,
                        bool training, struct net_result *result, struct err *err)
{
    enum status status = check_labels(net, labels, n, err);

    assert(n > 0 && !(training && net->evaluate_only));

    net->trained_forward = false;
    refresh_low(net);
    if (status == STATUS_OK)
        status = net->backend->step_begin(net->state, images, labels, n, training, err);
    for (uint32_t i = 0; status == STATUS_OK && i < net->graph->layer_count; i++)
        status = net->backend->layer_forward(net->state, i, err);
    if (status != STATUS_OK)
        return status;
    net->trained_forward = training;
    net->backend->result(net->state, result);
    return STATUS_OK;
}

/* One bucket is complete; what was kept of it is used up. */
static void join_kept(struct net *net, uint32_t index)
{
    const struct net_bucket *bucket = &net->buckets[index];
    float *kept = net->kept + (bucket->grads - net->grads);

    net->backend->add(net->state, bucket->grads, kept, bucket->count);
    memset(kept, 0, bucket->count * sizeof *kept);
}

void net_grads_keep(struct net *net)
{
    assert(net->kept != NULL);
    net->backend->add(net->state, net->kept, net->grads, net->grad_count);
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
            if (ready != NULL)
                ready(user, next);
        }
    }
    net->joins_kept = false;
    assert(next == net->graph->bucket_count);
    return STATUS_OK;
}

static void round_state(struct net *net, float *param, float *momentum, size_t n,
                        enum graph_dtype dtype)
{
    if (dtype == GRAPH_F32)
        return;
    net->backend->cast(net->state, param, param, n, dtype);
    if (momentum != NULL)
        net->backend->cast(net->state, momentum, momentum, n, dtype);
}

void net_clip(struct net *net, const struct net_clip *clip)
{
    assert(!net->evaluate_only);
    if (net->is_scale_dynamic) /* before an infinity is clipped to a number */
        net->backend->finite(net->state, net->grads, net->grad_count, net->scaler);
    net->backend->clip(net->state, net->grads, net->grad_count, clip, net->scaler);
}

void net_update(struct net *net, const struct net_sgd *sgd)
{
    bool uses_momentum = sgd->momentum > 0.0F;

    assert(!net->evaluate_only);
    if (net->is_scale_dynamic)
        net->backend->finite(net->state, net->grads, net->grad_count, net->scaler);
    for (uint32_t i = 0; i < net->graph->tensor_count; i++) {
        const struct slot *slot = &net->slots[i];

        float *param = net->params + slot->param_at;
        float *momentum = uses_momentum ? net->momentum + slot->grad_at : NULL;

        if (!net->tensors[i].trainable)
            continue;
        net->backend->sgd(net->state, param, net->grads + slot->grad_at, momentum, slot->size, sgd,
                          net->scaler);
        if (!net->graph->tensors[i].has_master) /* pure fp16: what was written is rounded */
            round_state(net, param, momentum, slot->size, net->graph->tensors[i].dtype);
    }
    net->low_is_stale = true;
    net->backend->scaler_end(net->state, net->scaler, uses_momentum);
}

struct scaler net_scaler(struct net *net)
{
    return *net->scaler;
}

void net_scaler_write(struct net *net, const struct scaler *scaler)
{
    net->scaler->scale = scaler->scale;
    net->scaler->unskipped = scaler->unskipped;
    net->scaler->skipped_in_a_row = scaler->skipped_in_a_row;
}

void net_describe_nonfinite(struct net *net, char *text, size_t byte_limit)
{
    uint32_t layer = net->backend->first_nonfinite(net->state);

    text[0] = '\0';
    if (layer != GRAPH_NONE) {
        (void)snprintf(text, byte_limit, "the output of layer %s", net->graph->layers[layer].name);
        return;
    }
    for (uint32_t index = net->graph->tensor_count; index-- > 0;) {
        struct scaler look = {0};

        if (!net->tensors[index].trainable)
            continue;
        net->backend->finite(net->state, net->grads + net->slots[index].grad_at,
                             net->slots[index].size, &look);
        if (!look.found_inf)
            continue;
        (void)snprintf(text, byte_limit, "the gradient of %s", net->tensors[index].name);
        return;
    }
}

bool net_profile(const struct net *net, uint32_t index, struct net_profile *profile)
{
    return net->backend->profile(net->state, index, profile);
}

size_t net_bytes(const struct net *net)
{
    size_t arenas = net->param_count +
                    (net->evaluate_only ? 0 : (net->accumulate ? 3 : 2) * net->grad_count) +
                    (net->low != NULL ? net->buffer_at : 0);

    return arenas * sizeof(float) + net->backend->bytes(net->state);
}
