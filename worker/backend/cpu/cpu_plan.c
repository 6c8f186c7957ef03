/* First fit, largest first. The number of buffers is a few hundred, so squares are nothing. */
#include "worker/backend/cpu/cpu_plan.h"

#include <stdbool.h>

#define ALIGN 64

static size_t room(const struct cpu_plan_item *item)
{
    return (item->bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Indices by size, falling; equal sizes in the order given. */
static void sort_by_size(const struct cpu_plan_item *items, uint32_t count, uint32_t *order)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;

        for (; at > 0 && items[order[at - 1]].bytes < items[i].bytes; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static bool meet(const struct cpu_plan_item *a, const struct cpu_plan_item *b)
{
    return a->birth <= b->death && b->birth <= a->death;
}

/* placed: [placed_count] indices by offset, rising. */
static size_t lowest_gap(const struct cpu_plan_item *items, const uint32_t *placed,
                         uint32_t placed_count, const struct cpu_plan_item *item)
{
    size_t offset = 0;

    for (uint32_t i = 0; i < placed_count; i++) {
        const struct cpu_plan_item *other = &items[placed[i]];

        if (!meet(item, other))
            continue;
        if (offset + room(item) <= other->offset)
            break;
        if (other->offset + room(other) > offset)
            offset = other->offset + room(other);
    }
    return offset;
}

size_t cpu_plan(struct cpu_plan_item *items, uint32_t count, uint32_t *scratch)
{
    uint32_t *order = scratch, *placed = scratch + count;
    size_t bytes = 0;

    sort_by_size(items, count, order);
    for (uint32_t i = 0; i < count; i++) {
        struct cpu_plan_item *item = &items[order[i]];
        uint32_t at = i;

        item->offset = lowest_gap(items, placed, i, item);
        if (item->offset + room(item) > bytes)
            bytes = item->offset + room(item);
        for (; at > 0 && items[placed[at - 1]].offset > item->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = order[i];
    }
    return bytes;
}
