/* Plan requests: names, ports and sizes, and the requests of a graph. Without CUDA. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "worker/backend/cuda/plans/plans.h"

const char *plan_kind_name(enum plan_kind kind)
{
    static const char *const names[] = {
#define PLAN_KIND_NAME(name, text) [PLAN_##name] = (text),
        PLAN_KIND_TABLE(PLAN_KIND_NAME)
#undef PLAN_KIND_NAME
    };

    assert(kind < PLAN_KINDS);
    return names[kind];
}

const char *plan_port_name(enum plan_port port)
{
    static const char *const names[] = {
#define PLAN_PORT_NAME(name) [PLAN_PORT_##name] = #name,
        PLAN_PORT_TABLE(PLAN_PORT_NAME)
#undef PLAN_PORT_NAME
    };

    assert(port < PLAN_PORTS);
    return names[port];
}

const char *plan_type_name(enum graph_dtype type)
{
    static const char *const names[] = {
        [GRAPH_F32] = "fp32", [GRAPH_F16] = "fp16", [GRAPH_BF16] = "bf16"};

    return names[type];
}

#define BIT(port) (1U << PLAN_PORT_##port)
#define STATISTICS (BIT(MEAN) | BIT(INV_STD))
#define RUNNING (BIT(RUNNING_MEAN) | BIT(RUNNING_VAR))
#define AFFINE (BIT(SCALE) | BIT(SHIFT))
#define EQUAL (BIT(EQ_SCALE) | BIT(EQ_SHIFT))
#define FACTORS (BIT(DY_FACTOR) | BIT(X_FACTOR) | BIT(TERM))
#define SUMS (BIT(SUM) | BIT(SQ_SUM))

/* Ports of each kind: always, and with has_bias, has_add, has_relu. */
static const struct {
    uint32_t always, bias, add, relu;
} takes[PLAN_KINDS] = {
    [PLAN_CONV_FORWARD] = {BIT(X) | BIT(W) | BIT(Y), BIT(BIAS), 0, 0},
    [PLAN_CONV_DGRAD] = {BIT(DY) | BIT(W) | BIT(DX), 0, 0, 0},
    [PLAN_CONV_DGRAD_ADD] = {BIT(DY) | BIT(W) | BIT(DX), 0, 0, 0},
    [PLAN_CONV_WGRAD] = {BIT(DY) | BIT(X) | BIT(DW), 0, 0, 0},
    [PLAN_NORM_FORWARD] = {BIT(X) | BIT(Y) | AFFINE | STATISTICS | RUNNING, 0, BIT(ADD), BIT(MASK)},
    [PLAN_NORM_EVALUATE] = {BIT(X) | BIT(Y) | AFFINE | STATISTICS, 0, BIT(ADD), 0},
    [PLAN_NORM_BACKWARD] = {BIT(DY) | BIT(X) | BIT(SCALE) | STATISTICS | BIT(DX) | BIT(DSCALE) |
                                BIT(DSHIFT),
                            0, 0, BIT(MASK)},
    [PLAN_LINEAR_FORWARD] = {BIT(X) | BIT(W) | BIT(Y), BIT(BIAS), 0, 0},
    [PLAN_LINEAR_DGRAD] = {BIT(DY) | BIT(W) | BIT(DX), 0, 0, 0},
    [PLAN_LINEAR_WGRAD] = {BIT(DY) | BIT(X) | BIT(DW), BIT(DBIAS), 0, 0},
    [PLAN_CONV_STATS] = {BIT(X) | BIT(W) | BIT(Y) | SUMS, 0, 0, 0},
    [PLAN_CONV_STATS_PROLOGUE] = {BIT(X) | EQUAL | BIT(W) | BIT(Y) | SUMS, 0, 0, 0},
    [PLAN_STATS_FINALIZE] = {SUMS | AFFINE | STATISTICS | RUNNING | EQUAL, 0, 0, 0},
    [PLAN_NORM_APPLY] = {BIT(X) | AFFINE | STATISTICS | BIT(Y), 0, BIT(ADD), BIT(MASK)},
    [PLAN_CONV_WGRAD_PROLOGUE] = {BIT(DY) | BIT(X) | EQUAL | BIT(DW), 0, 0, 0},
    [PLAN_CONV_DGRAD_NORM] = {BIT(DY) | BIT(W) | BIT(X) | STATISTICS | AFFINE | BIT(DADD) |
                                  BIT(DSCALE) | BIT(DSHIFT) | FACTORS,
                              0, 0, 0},
    [PLAN_NORM_DX] = {BIT(DADD) | BIT(X) | FACTORS | BIT(DX), 0, 0, 0},
    [PLAN_CONV_DGRAD_MASKED] = {BIT(DY) | BIT(W) | BIT(DADD) | BIT(MASK) | BIT(DX), 0, 0, 0},
};

bool plan_takes(const struct plan_request *request, enum plan_port port)
{
    uint32_t bits = takes[request->kind].always;

    bits |= request->has_bias ? takes[request->kind].bias : 0;
    bits |= request->has_add ? takes[request->kind].add : 0;
    bits |= request->has_relu ? takes[request->kind].relu : 0;
    if (request->kind == PLAN_NORM_BACKWARD && request->has_add && request->has_relu)
        bits |= BIT(DADD); /* without a ReLU the gradient of the added value is DY itself */
    return (bits >> port & 1U) != 0;
}

static size_t value_count(uint32_t n, uint32_t h, uint32_t w, uint32_t c)
{
    return (size_t)n * h * w * c;
}

size_t plan_port_bytes(const struct plan_request *request, enum plan_port port)
{
    const size_t element = request->type == GRAPH_F32 ? 4 : 2;
    const bool has_window = request->out_h != 0;
    const size_t in = value_count(request->n, request->h, request->w, request->c);
    const size_t out = has_window
                           ? value_count(request->n, request->out_h, request->out_w, request->k)
                           : value_count(request->n, request->h, request->w, request->k);

    switch (port) {
    case PLAN_PORT_X:
    case PLAN_PORT_DX:
    case PLAN_PORT_ADD:
    case PLAN_PORT_DADD:
        return in * element;
    case PLAN_PORT_Y:
    case PLAN_PORT_DY:
        return out * element;
    case PLAN_PORT_MASK:
        return (in + 7) / 8;
    case PLAN_PORT_W:
    case PLAN_PORT_DW:
        return value_count(request->k, has_window ? request->window.kernel : 1,
                           has_window ? request->window.kernel : 1, request->c) *
               element;
    case PLAN_PORT_BIAS:
    case PLAN_PORT_DBIAS:
        return request->k * element;
    case PLAN_PORT_EQ_SCALE:
    case PLAN_PORT_EQ_SHIFT:
        return request->c * element;
    case PLAN_PORT_SCALE:
    case PLAN_PORT_SHIFT:
    case PLAN_PORT_DSCALE:
    case PLAN_PORT_DSHIFT:
    case PLAN_PORT_MEAN:
    case PLAN_PORT_INV_STD:
    case PLAN_PORT_RUNNING_MEAN:
    case PLAN_PORT_RUNNING_VAR:
    case PLAN_PORT_DY_FACTOR:
    case PLAN_PORT_X_FACTOR:
    case PLAN_PORT_TERM:
        return request->c * sizeof(float);
    case PLAN_PORT_SUM:
    case PLAN_PORT_SQ_SUM:
        return request->k * sizeof(float);
    case PLAN_PORTS:
        break;
    }
    assert(port < PLAN_PORTS);
    return 0;
}

/* How often a run reads or writes the port's memory: a batch norm reads its input for the statistics and again to
 * apply them, both ways. */
static double passes(enum plan_kind kind, enum plan_port port)
{
    const bool is_twice =
        (kind == PLAN_NORM_FORWARD && port == PLAN_PORT_X) ||
        (kind == PLAN_NORM_BACKWARD &&
         (port == PLAN_PORT_X || port == PLAN_PORT_DY || port == PLAN_PORT_MASK)) ||
        (kind == PLAN_CONV_DGRAD_ADD && port == PLAN_PORT_DX);

    return is_twice ? 2 : 1;
}

static double multiplications(const struct plan_request *request)
{
    const bool is_conv = request->out_h != 0;
    const size_t out = is_conv ? value_count(request->n, request->out_h, request->out_w, request->k)
                               : value_count(request->n, 1, 1, request->k);
    const size_t kernel = is_conv ? (size_t)request->window.kernel * request->window.kernel : 1;
    const bool is_linear = request->kind == PLAN_LINEAR_FORWARD ||
                           request->kind == PLAN_LINEAR_DGRAD || request->kind == PLAN_LINEAR_WGRAD;

    return is_conv || is_linear ? (double)out * (double)kernel * (double)request->c : 0;
}

/* An H100's rates: 90 % of 3.35 TB/s, 60 % of 989 TFLOP/s at 16 bits and of 67 at fp32. */
double plan_cost_us(const struct plan_request *request)
{
    const double bytes_us = 0.9 * 3.35e6,
                 flop_us = 0.6 * (request->type == GRAPH_F32 ? 67e6 : 989e6);
    const double compute_us = 2 * multiplications(request) / flop_us;
    double moved = 0;

    for (uint32_t port = 0; port < PLAN_PORTS; port++)
        if (plan_takes(request, (enum plan_port)port))
            moved += passes(request->kind, (enum plan_port)port) *
                     (double)plan_port_bytes(request, (enum plan_port)port);
    moved /= bytes_us;
    return moved > compute_us ? moved : compute_us;
}

static uint32_t round_up(uint32_t count, uint32_t step)
{
    return (count + step - 1) / step * step;
}

uint32_t plan_stored_channels(uint32_t channels)
{
    return round_up(channels, 8);
}

/* The layer's source: skips casts, which change only the type. */
static uint32_t source(const struct graph *graph, uint32_t layer)
{
    while (graph->layers[layer].op == GRAPH_CAST)
        layer = graph->layers[layer].inputs[0];
    return layer;
}

uint32_t plan_image_channels(const struct graph *graph)
{
    bool is_wide = false;

    for (uint32_t i = 1; i < graph->layer_count; i++) {
        const struct graph_layer *layer = &graph->layers[i];

        is_wide = is_wide || (layer->op == GRAPH_CONV2D && layer->out.dtype == GRAPH_BF16 &&
                              graph->layers[source(graph, layer->inputs[0])].op == GRAPH_INPUT);
    }
    return round_up(graph->layers[0].out.dims[0], is_wide ? 8 : 4);
}

/* The only layer that reads the value of `layer`; GRAPH_NONE if there is none or several. */
static uint32_t only_user(const struct graph *graph, uint32_t layer)
{
    uint32_t user = GRAPH_NONE;

    for (uint32_t i = layer + 1; i < graph->layer_count; i++)
        for (uint32_t k = 0; k < 2; k++) {
            if (graph->layers[i].inputs[k] != layer)
                continue;
            if (user != GRAPH_NONE)
                return GRAPH_NONE;
            user = i;
        }
    return user;
}

/* Stored channels of a layer's value, or stored features: a flattened image has height * width
 * times its stored channels. */
static uint32_t stored(const struct graph *graph, uint32_t layer)
{
    const uint32_t from = source(graph, layer);
    const struct graph_layer *root = &graph->layers[from];

    if (root->op == GRAPH_FLATTEN) {
        const struct graph_value *image = &graph->layers[root->inputs[0]].out;

        if (image->dim_count == 3)
            return image->dims[1] * image->dims[2] * stored(graph, root->inputs[0]);
        return stored(graph, root->inputs[0]);
    }
    return root->op == GRAPH_INPUT ? plan_image_channels(graph)
                                   : plan_stored_channels(root->out.dims[0]);
}

struct lister {
    const struct graph *graph;
    uint32_t batch;
    bool trains;
    struct plan_request *requests; /* NULL: only count */
    uint32_t count;
};

static void add(struct lister *lister, struct plan_request request, enum plan_kind kind)
{
    request.kind = kind;
    if (lister->requests != NULL)
        lister->requests[lister->count] = request;
    lister->count++;
}

/* The fields that all plans of a layer have in common. */
static struct plan_request common(const struct lister *lister, uint32_t index)
{
    const struct graph_layer *layer = &lister->graph->layers[index];
    const struct graph_value *in = &lister->graph->layers[layer->inputs[0]].out;
    const bool is_image = in->dim_count == 3;
    struct plan_request request = {
        .layer = index,
        .type = layer->out.dtype,
        .n = lister->batch,
        .c = stored(lister->graph, layer->inputs[0]),
        .h = is_image ? in->dims[1] : 1,
        .w = is_image ? in->dims[2] : 1,
    };

    (void)snprintf(request.name, sizeof request.name, "%s", layer->name);
    return request;
}

static struct plan_request window_request(const struct lister *lister, uint32_t index)
{
    const struct graph_layer *layer = &lister->graph->layers[index];
    struct plan_request request = common(lister, index);

    request.k = plan_stored_channels(layer->out.dims[0]);
    request.has_bias = layer->has_bias;
    if (layer->op == GRAPH_CONV2D) {
        request.out_h = layer->out.dims[1];
        request.out_w = layer->out.dims[2];
        request.window = layer->window;
    }
    return request;
}

static void list_window(struct lister *lister, uint32_t index)
{
    const struct graph_layer *layer = &lister->graph->layers[index];
    const bool is_conv = layer->op == GRAPH_CONV2D;
    const bool first =
        lister->graph->layers[source(lister->graph, layer->inputs[0])].op == GRAPH_INPUT;
    struct plan_request request = window_request(lister, index);

    add(lister, request, is_conv ? PLAN_CONV_FORWARD : PLAN_LINEAR_FORWARD);
    if (!lister->trains)
        return;
    if (is_conv)
        request.has_bias = false; /* another kernel computes its gradient */
    add(lister, request, is_conv ? PLAN_CONV_WGRAD : PLAN_LINEAR_WGRAD);
    request.has_bias = false;
    if (!first)
        add(lister, request, is_conv ? PLAN_CONV_DGRAD : PLAN_LINEAR_DGRAD);
}

static struct plan_request norm_request(const struct lister *lister, uint32_t index)
{
    const struct graph_layer *layer = &lister->graph->layers[index];
    struct plan_request request = common(lister, index);

    request.k = request.c;
    request.eps = layer->eps;
    request.momentum = layer->momentum;
    request.has_add = layer->fused_add;
    request.has_relu = layer->fused_relu;
    return request;
}

static void list_norm(struct lister *lister, uint32_t index)
{
    const struct plan_request request = norm_request(lister, index);

    if (!lister->trains)
        return;
    add(lister, request, PLAN_NORM_FORWARD);
    add(lister, request, PLAN_NORM_BACKWARD);
}

uint32_t plan_list(const struct graph *graph, uint32_t batch, bool evaluate_only,
                   struct plan_request *requests)
{
    struct lister lister = {graph, batch, !evaluate_only, requests, 0};

    for (uint32_t i = 0; i < graph->layer_count; i++) {
        const enum graph_op op = graph->layers[i].op;

        if (op == GRAPH_CONV2D || op == GRAPH_LINEAR)
            list_window(&lister, i);
        else if (op == GRAPH_BATCH_NORM)
            list_norm(&lister, i);
    }
    return lister.count;
}

/* The batch norm that takes its statistics from convolution `index`; GRAPH_NONE: there is none. */
static uint32_t norm_of(const struct graph *graph, uint32_t index)
{
    const struct graph_layer *conv = &graph->layers[index];
    const uint32_t user =
        graph->layers[index].op == GRAPH_CONV2D ? only_user(graph, index) : GRAPH_NONE;

    if (user == GRAPH_NONE || graph->layers[user].op != GRAPH_BATCH_NORM || conv->has_bias ||
        graph->layers[user].inputs[0] != index || conv->out.dtype != GRAPH_F16 ||
        conv->out.dims[0] % 64 != 0 ||
        graph->layers[source(graph, conv->inputs[0])].op == GRAPH_INPUT)
        return GRAPH_NONE;
    return user;
}

/* Whether the value of batch norm `index`, whose statistics come from a convolution, is computed
 * inside the only convolution that reads it. */
static bool is_absorbed(const struct graph *graph, uint32_t index)
{
    const struct graph_layer *norm = &graph->layers[index];
    const uint32_t user = only_user(graph, index);

    return norm->op == GRAPH_BATCH_NORM && norm_of(graph, norm->inputs[0]) == index &&
           norm->fused_relu && !norm->fused_add && !norm->fused_pool && user != GRAPH_NONE &&
           norm_of(graph, user) != GRAPH_NONE;
}

static void list_conv_statistics(struct lister *lister, uint32_t index, bool prologues)
{
    const struct plan_request request = window_request(lister, index);

    add(lister, request, PLAN_CONV_STATS);
    if (!prologues || !is_absorbed(lister->graph, lister->graph->layers[index].inputs[0]))
        return;
    add(lister, request, PLAN_CONV_STATS_PROLOGUE);
    add(lister, request, PLAN_CONV_WGRAD_PROLOGUE);
    add(lister, request, PLAN_CONV_DGRAD_NORM);
}

static void list_norm_statistics(struct lister *lister, uint32_t index, bool prologues)
{
    const struct plan_request request = norm_request(lister, index);

    add(lister, request, PLAN_STATS_FINALIZE);
    add(lister, request, request.has_relu ? PLAN_NORM_APPLY : PLAN_NORM_EVALUATE);
    if (prologues && is_absorbed(lister->graph, index))
        add(lister, request, PLAN_NORM_DX);
}

uint32_t plan_list_statistics(const struct graph *graph, uint32_t batch, bool prologues,
                              struct plan_request *requests)
{
    struct lister lister = {graph, batch, true, requests, 0};

    for (uint32_t i = 0; i < graph->layer_count; i++) {
        const struct graph_layer *layer = &graph->layers[i];

        if (norm_of(graph, i) != GRAPH_NONE)
            list_conv_statistics(&lister, i, prologues);
        else if (layer->op == GRAPH_BATCH_NORM && norm_of(graph, layer->inputs[0]) == i)
            list_norm_statistics(&lister, i, prologues);
    }
    return lister.count;
}
