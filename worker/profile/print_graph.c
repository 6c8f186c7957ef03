/* --print-graph. See print_graph.h. */
#include "worker/profile/print_graph.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "worker/net/profile.h"
#include "worker/net/state.h"

static void print_shape(FILE *out, const struct graph_value *value)
{
    char text[48];
    int at = snprintf(text, sizeof text, "%u", value->dims[0]);

    for (uint32_t i = 1; i < value->dim_count && at > 0 && (size_t)at < sizeof text; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "x%u", value->dims[i]);
    (void)fprintf(out, "%-4s %-14s", graph_dtype_name(value->dtype), text);
}

static void print_inputs(FILE *out, const struct graph *graph, const struct graph_layer *layer)
{
    for (uint32_t k = 0; k < 2; k++)
        if (layer->op != GRAPH_INPUT && layer->inputs[k] != GRAPH_NONE)
            (void)fprintf(out, "%s%s", k == 0 ? " <- " : ", ",
                          graph->layers[layer->inputs[k]].name);
    if (layer->fused_add)
        (void)fputs(" +add", out);
    if (layer->fused_relu)
        (void)fputs(" +relu", out);
    if (layer->fused_pool)
        (void)fputs(" +max_pool", out);
}

/* "weight fp16 (master fp32, gradient fp16) [16x1x5x5]" */
static void print_tensor(FILE *out, const struct graph_layer *layer,
                         const struct graph_tensor *tensor)
{
    const char *name = tensor->name + strlen(layer->name);

    (void)fprintf(out, "            %s %s", *name == '.' ? name + 1 : tensor->name,
                  graph_dtype_name(tensor->dtype));
    if (tensor->trainable)
        (void)fprintf(out, " (%sgradient %s)", tensor->has_master ? "master fp32, " : "",
                      graph_dtype_name(tensor->grad_dtype));
    (void)fputs(" [", out);
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        (void)fprintf(out, "%s%u", i == 0 ? "" : "x", tensor->dims[i]);
    (void)fputs("]\n", out);
}

static void print_buckets(FILE *out, const struct graph *graph)
{
    for (uint32_t b = 0; b < graph->bucket_count; b++) {
        const struct graph_bucket *bucket = &graph->buckets[b];
        uint64_t count = 0;

        assert(bucket->order_first + bucket->order_count <= graph->grad_count);
        for (uint32_t i = 0; i < bucket->order_count; i++)
            count += graph->tensors[graph->grad_order[bucket->order_first + i]].count;
        count *= graph_dtype_bytes(bucket->dtype);
        (void)fprintf(out, "  bucket %u: %s, %" PRIu64 " bytes:", b,
                      graph_dtype_name(bucket->dtype), count);
        for (uint32_t i = 0; i < bucket->order_count; i++)
            (void)fprintf(out, " %s",
                          graph->tensors[graph->grad_order[bucket->order_first + i]].name);
        (void)fputc('\n', out);
    }
}

void print_graph_pass(void *user, const char *pass, const struct graph *graph)
{
    FILE *out = user;

    (void)fprintf(out, "-- after %s: %u layers --\n", pass, graph->layer_count);
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        const struct graph_layer *layer = &graph->layers[i];

        (void)fprintf(out, "  %4u  ", i);
        print_shape(out, &layer->out);
        (void)fprintf(out, " %-14s %s", graph_op_name(layer->op), layer->name);
        print_inputs(out, graph, layer);
        (void)fputc('\n', out);
        for (uint32_t k = 0; k < layer->tensor_count; k++)
            print_tensor(out, layer, &graph->tensors[layer->tensor_first + k]);
    }
    print_buckets(out, graph);
}

void print_graph_half(FILE *out, const struct net *net)
{
    struct net_half_layer half;

    for (uint32_t i = 0; net_half_layer(net, i, &half); i++) {
        const char *type = graph_dtype_name(half.dtype);

        if (i == 0)
            (void)fputs("-- how 16 bits are computed --\n", out);
        if (half.is_computed)
            (void)fprintf(out, "  %s: computed in %s, sums in fp32\n", half.name, type);
        else
            (void)fprintf(out, "  %s: computed in fp32, rounded to %s\n", half.name, type);
    }
}

void print_graph_memory(FILE *out, struct net *net)
{
    uint64_t reduced = 0;

    for (uint32_t b = 0; b < net_bucket_count(net); b++) {
        struct net_bucket bucket = net_bucket(net, b);

        reduced += bucket.count * (uint64_t)graph_dtype_bytes(bucket.dtype);
    }
    (void)fprintf(out, "-- memory --\n  the net: %zu bytes on this backend\n", net_bytes(net));
    (void)fprintf(out, "  reduced in a step: %llu bytes in %u buckets\n",
                  (unsigned long long)reduced, net_bucket_count(net));
}
