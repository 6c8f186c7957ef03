#include "rendezvous/core/place.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/core/failure.h"
#include "rendezvous/core/reach.h"
#include "rendezvous/core/state.h"

void pool_put(struct pool *pool, uint32_t node, uint64_t mask)
{
    assert(pool->masks[node] == 0);
    pool->masks[node] = mask;
    for (uint32_t k = bits_count(mask); k > 0; k--)
        pool->fit[k]++;
}

void pool_add(struct pool *pool, uint32_t node, uint64_t mask)
{
    uint32_t before = bits_count(pool->masks[node]);

    pool->masks[node] |= mask;
    for (uint32_t k = bits_count(pool->masks[node]); k > before; k--)
        pool->fit[k]++;
}

void pool_take(struct pool *pool, uint32_t node, uint64_t mask)
{
    uint32_t before = bits_count(pool->masks[node]);

    pool->masks[node] &= ~mask;
    for (uint32_t k = bits_count(pool->masks[node]) + 1; k <= before; k++)
        pool->fit[k]--;
}

bool pool_fits(const struct pool *pool, uint32_t nodes, uint32_t slots)
{
    assert(slots > 0 && slots <= SLOTS_PER_NODE_MAX);
    return pool->fit[slots] >= nodes;
}

uint64_t lowest_bits(uint64_t mask, uint32_t count)
{
    uint64_t bits = 0;

    for (; count > 0 && mask != 0; count--) {
        bits |= mask & (~mask + 1);
        mask &= mask - 1;
    }
    return bits;
}

struct choice {
    const struct rdzv *rdzv;
    const struct pool *pool;
    const struct job *job;
    struct rdzv_part *parts;
    uint32_t nodes, missing;
    uint32_t left_out;                   /* nodes with room that are not used */
    bool placed[NODES_PER_JOB_MAX];      /* by node rank */
    uint64_t taken[NODES_MAX / 64u + 1]; /* bit i: node i */
};

/* Places the part of one node rank on a node. `before`: its slots in the last generation. */
static void place(struct choice *choice, uint32_t node_rank, uint32_t node, uint64_t before)
{
    uint32_t count = choice->job->record.nproc_per_node;
    uint64_t free = choice->pool->masks[node];
    struct rdzv_part *part = &choice->parts[node_rank];

    *part = (struct rdzv_part){.rank_base = node_rank * count, .local_count = count};
    (void)snprintf(part->node, sizeof part->node, "%s", choice->rdzv->nodes[node].name);
    part->slot_mask = before != 0 && (before & free) == before && bits_count(before) == count
                          ? before
                          : lowest_bits(free, count);
    choice->placed[node_rank] = true;
    choice->taken[node / 64] |= 1ull << node % 64;
    choice->missing--;
}

/* The number of free slots on a node that may be chosen; 0: it may not. */
static uint32_t room(const struct choice *choice, uint32_t node)
{
    uint32_t count = bits_count(choice->pool->masks[node]);

    if (count < choice->job->record.nproc_per_node ||
        (choice->taken[node / 64] >> node % 64 & 1) != 0)
        return 0;
    return count;
}

static void place_as_before(struct choice *choice)
{
    const struct gang *last = &choice->job->last;
    const bool moves_up = last->part_count != choice->missing;
    uint32_t next = 0;

    for (uint32_t rank = 0; rank < last->part_count && choice->missing > 0; rank++) {
        const struct node *node = roster_find(choice->rdzv, last->places[rank].node);
        uint32_t index = node != NULL ? roster_index(choice->rdzv, node) : 0;

        if (node != NULL && room(choice, index) > 0)
            place(choice, moves_up ? next++ : rank, index, last->places[rank].slot_mask);
    }
}

static void place_on_spares(struct choice *choice)
{
    const struct rdzv *rdzv = choice->rdzv;
    uint32_t rank = 0;

    for (uint32_t i = 0; choice->job->spare_count > 0 && i < rdzv->node_count; i++) {
        const uint32_t node = rdzv->by_name[i];
        const uint64_t mask = spare_table_ready(rdzv, node, choice->job);

        if (choice->missing == 0 || mask == 0 || room(choice, node) == 0)
            continue;
        while (choice->placed[rank])
            rank++;
        place(choice, rank, node, mask);
    }
}

/* Does not use the node if the others have room for the job. */
static void leave_out(struct choice *choice, uint32_t index)
{
    const uint32_t slots = choice->job->record.nproc_per_node;
    uint32_t others =
        choice->pool->fit[slots] - choice->left_out - (choice->nodes - choice->missing);

    if (room(choice, index) == 0)
        return;
    others--;
    if (others >= choice->missing) {
        choice->taken[index / 64] |= 1ull << index % 64;
        choice->left_out++;
    }
}

/* After the failure of a node the job goes elsewhere first, and to that node again if it must. The same for ten minutes
 * for one that was late with a start, whatever ended a generation since. */
static void leave_out_failed(struct choice *choice)
{
    const struct rdzv_record *record = &choice->job->record;
    const struct node *node = NULL;

    if (record->generation > 0 && record->failed_class == FAILURE_NODE)
        node = roster_find(choice->rdzv, record->failed_node);
    if (node != NULL)
        leave_out(choice, roster_index(choice->rdzv, node));
    for (uint32_t i = choice->job->fault_count; i-- > 0;) { /* the newest first */
        const uint16_t index = failure_avoided(choice->rdzv, choice->job, i);

        if (index != NODE_NONE)
            leave_out(choice, index);
    }
}

/* Nodes that do not carry out their orders (trouble.h): a start there fails only when its deadline has passed. */
static void leave_out_troubled(struct choice *choice)
{
    for (uint32_t i = 0; i < choice->rdzv->node_count; i++)
        if (choice->rdzv->nodes[i].trouble.text[0] != '\0')
            leave_out(choice, i);
}

/* Nodes that other machines do not reach. */
static void leave_out_alone(struct choice *choice)
{
    for (uint32_t i = 0; choice->nodes > 1 && i < choice->rdzv->node_count; i++)
        if (reach_is_alone(choice->rdzv, &choice->rdzv->nodes[i]))
            leave_out(choice, i);
}

/* The nodes with the fewest free slots are chosen first. *most: the number of free slots of the
 * largest node that is needed. Returns how many nodes with exactly *most slots are chosen; all
 * nodes with fewer are. */
static uint32_t count_largest(const struct choice *choice, uint32_t *most)
{
    uint32_t counts[SLOTS_PER_NODE_MAX + 1] = {0}, missing = choice->missing;

    for (uint32_t i = 0; i < choice->rdzv->node_count; i++)
        counts[room(choice, choice->rdzv->by_name[i])]++;
    for (*most = 1; *most < SLOTS_PER_NODE_MAX && counts[*most] < missing; ++*most)
        missing -= counts[*most];
    assert(counts[*most] >= missing);
    return missing;
}

void place_job(const struct rdzv *rdzv, const struct pool *pool, const struct job *job,
               uint32_t nodes, struct rdzv_part *parts)
{
    struct choice choice = {
        .rdzv = rdzv, .pool = pool, .job = job, .parts = parts, .nodes = nodes, .missing = nodes};
    uint32_t most, of_largest, rank = 0;

    leave_out_failed(&choice);
    leave_out_alone(&choice);
    place_as_before(&choice);
    place_on_spares(&choice);
    leave_out_troubled(&choice);
    of_largest = count_largest(&choice, &most);
    for (uint32_t i = 0; i < rdzv->node_count && choice.missing > 0; i++) {
        uint32_t count = room(&choice, rdzv->by_name[i]);

        if (count == 0 || count > most || (count == most && of_largest == 0))
            continue;
        of_largest -= count == most;
        while (choice.placed[rank])
            rank++;
        place(&choice, rank, rdzv->by_name[i], 0);
    }
    assert(choice.missing == 0);
}
