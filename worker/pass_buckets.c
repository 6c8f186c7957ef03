/* Gradient buckets: which gradients are reduced together, in the order that backward makes them. */
#include "worker/pass.h"

#include <stdlib.h>

static void order_grads(struct graph *graph)
{
    graph->grad_count = 0;
    for (uint32_t i = graph->tensor_count; i-- > 0;)
        if (graph->tensors[i].trainable)
            graph->grad_order[graph->grad_count++] = i;
}

/* Source of the rule: torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size.
 */
static void close_buckets(struct graph *graph, uint64_t first_bytes, uint64_t bytes)
{
    uint64_t filled = 0, limit = first_bytes;
    uint32_t first = 0;

    graph->bucket_count = 0;
    for (uint32_t i = 0; i < graph->grad_count; i++) {
        filled += graph->tensors[graph->grad_order[i]].count * sizeof(float);
        if (filled < limit && i + 1 < graph->grad_count)
            continue;
        graph->buckets[graph->bucket_count++] = (struct graph_bucket){first, i + 1 - first};
        first = i + 1;
        filled = 0;
        limit = bytes;
    }
}

enum status pass_buckets(const struct graph *graph, uint64_t first_bytes, uint64_t bytes,
                         struct graph **out, struct err *err)
{
    *out = graph_copy(graph);
    if (*out == NULL)
        goto out_of_memory;
    free((*out)->grad_order);
    free((*out)->buckets);
    (*out)->grad_order = calloc((size_t)graph->tensor_count + 1, sizeof *(*out)->grad_order);
    (*out)->buckets = calloc((size_t)graph->tensor_count + 1, sizeof *(*out)->buckets);
    if ((*out)->grad_order == NULL || (*out)->buckets == NULL)
        goto out_of_memory;
    order_grads(*out);
    close_buckets(*out, first_bytes, bytes);
    return STATUS_OK;

out_of_memory:
    graph_free(out);
    return err_set(err, STATUS_MEMORY, 0, "cutting gradients into buckets: out of memory");
}
