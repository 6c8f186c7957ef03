/* First fit, largest first. There are only a few hundred buffers, so quadratic time does not
 * matter. */
#include "worker/net/memory_plan.h"

#include <assert.h>
#include <stdbool.h>

#define ALIGN 64

static size_t room(const struct memory_plan_item *item)
{
    return (item->bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Indices by size, falling; equal sizes in the order given. */
static void sort_by_size(const struct memory_plan_item *items, uint32_t count, uint32_t *order)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;

        for (; at > 0 && items[order[at - 1]].bytes < items[i].bytes; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static bool meet(const struct memory_plan_item *a, const struct memory_plan_item *b)
{
    return a->birth <= b->death && b->birth <= a->death;
}

/* placed: [placed_count] indices by offset, rising. */
static size_t lowest_gap(const struct memory_plan_item *items, const uint32_t *placed,
                         uint32_t placed_count, const struct memory_plan_item *item)
{
    size_t offset = 0;

    for (uint32_t i = 0; i < placed_count; i++) {
        const struct memory_plan_item *other = &items[placed[i]];

        if (!meet(item, other))
            continue;
        if (offset + room(item) <= other->offset)
            break;
        if (other->offset + room(other) > offset)
            offset = other->offset + room(other);
    }
    return offset;
}

size_t memory_plan(struct memory_plan_item *items, uint32_t count, uint32_t *scratch)
{
    uint32_t *order = scratch, *placed = scratch + count;
    size_t bytes = 0;

    sort_by_size(items, count, order);
    for (uint32_t i = 0; i < count; i++) {
        struct memory_plan_item *item = &items[order[i]];
        uint32_t at = i;

        assert(item->birth <= item->death);
        item->offset = lowest_gap(items, placed, i, item);
        if (item->offset + room(item) > bytes)
            bytes = item->offset + room(item);
        for (; at > 0 && items[placed[at - 1]].offset > item->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = order[i];
    }
    assert(bytes % ALIGN == 0);
    return bytes;
}

uint32_t memory_root(struct memory_values values, uint32_t layer)
{
    assert(layer < values.graph->layer_count);
    while (values.is_view(values.backend, layer))
        layer = values.graph->layers[layer].inputs[0];
    return layer;
}

bool memory_reads(struct memory_values values, uint32_t user, uint32_t input, uint32_t root)
{
    uint32_t read;

    assert(user < values.graph->layer_count && input < 2);
    read = values.graph->layers[user].inputs[input];
    return !values.is_view(values.backend, user) && read != GRAPH_NONE &&
           memory_root(values, read) == root;
}

uint32_t memory_last_user(struct memory_values values, uint32_t root)
{
    uint32_t last = GRAPH_NONE;

    for (uint32_t user = root + 1; user < values.graph->layer_count; user++)
        if (memory_reads(values, user, 0, root) || memory_reads(values, user, 1, root))
            last = user;
    return last;
}

uint32_t memory_backward_time(const struct graph *graph, uint32_t layer)
{
    assert(layer < graph->layer_count);
    return 2 * graph->layer_count - 1 - layer;
}

uint32_t memory_later(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}
