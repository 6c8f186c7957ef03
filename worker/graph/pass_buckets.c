/* Gradient buckets: which gradients are reduced together, in the order in which backward completes
 * them. */
#include "worker/graph/pass.h"

#include <assert.h>
#include <stdlib.h>

enum { DTYPES = 3 };

/* The bucket of one type that is being filled. */
struct filling {
    uint32_t *tensors; /* [count] */
    uint32_t count;
    uint64_t bytes, limit;
};

static void close_bucket(struct graph *graph, struct filling *filling, enum graph_dtype dtype)
{
    assert(filling->count > 0);
    graph->buckets[graph->bucket_count++] =
        (struct graph_bucket){graph->grad_count, filling->count, dtype};
    for (uint32_t i = 0; i < filling->count; i++)
        graph->grad_order[graph->grad_count++] = filling->tensors[i];
    filling->count = 0;
    filling->bytes = 0;
}

/* Closes the buckets that are not full, in the order in which backward completes them: backward
 * goes from the last tensor to the first, so the bucket with the highest last tensor comes first.
 */
static void close_rest(struct graph *graph, struct filling fillings[DTYPES])
{
    for (;;) {
        uint32_t best = DTYPES, best_last = 0;

        for (uint32_t d = 0; d < DTYPES; d++) {
            const struct filling *filling = &fillings[d];

            if (filling->count > 0 &&
                (best == DTYPES || filling->tensors[filling->count - 1] > best_last)) {
                best = d;
                best_last = filling->tensors[filling->count - 1];
            }
        }
        if (best == DTYPES)
            return;
        close_bucket(graph, &fillings[best], (enum graph_dtype)best);
    }
}

/* Source: torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size.
 *   room: [DTYPES][tensor_count], scratch */
static void close_buckets(struct graph *graph, uint64_t first_bytes, uint64_t bytes, uint32_t *room)
{
    struct filling fillings[DTYPES];

    for (uint32_t d = 0; d < DTYPES; d++)
        fillings[d] = (struct filling){room + (size_t)d * graph->tensor_count, 0, 0, first_bytes};
    graph->bucket_count = 0;
    graph->grad_count = 0;
    for (uint32_t i = graph->tensor_count; i-- > 0;) {
        const struct graph_tensor *tensor = &graph->tensors[i];
        struct filling *filling = &fillings[tensor->grad_dtype];

        if (!tensor->trainable)
            continue;
        filling->tensors[filling->count++] = i;
        filling->bytes += tensor->count * (uint64_t)graph_dtype_bytes(tensor->grad_dtype);
        if (filling->bytes < filling->limit)
            continue;
        close_bucket(graph, filling, tensor->grad_dtype);
        filling->limit = bytes;
    }
    close_rest(graph, fillings);
    assert(graph->grad_count <= graph->tensor_count && graph->bucket_count <= graph->tensor_count);
}

enum status pass_buckets(const struct graph *graph, uint64_t first_bytes, uint64_t bytes,
                         struct graph **out, struct err *err)
{
    uint32_t *room = calloc((size_t)graph->tensor_count * DTYPES + 1, sizeof *room);

    *out = graph_copy(graph);
    if (*out == NULL || room == NULL)
        goto out_of_memory;
    free((*out)->grad_order);
    free((*out)->buckets);
    (*out)->grad_order = calloc((size_t)graph->tensor_count + 1, sizeof *(*out)->grad_order);
    (*out)->buckets = calloc((size_t)graph->tensor_count + 1, sizeof *(*out)->buckets);
    if ((*out)->grad_order == NULL || (*out)->buckets == NULL)
        goto out_of_memory;
    close_buckets(*out, first_bytes, bytes, room);
    free(room);
    return STATUS_OK;

out_of_memory:
    free(room);
    graph_free(out);
    return err_set(err, STATUS_MEMORY, 0, "cutting gradients into buckets: out of memory");
}
