#include "rendezvous/core/reserve.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/core/failure.h"
#include "rendezvous/core/names.h"
#include "rendezvous/core/state.h"

/* When the slots of a running job become free, as far as known. Rather too early than too late,
 * since other jobs must be gone by then. 0: soon; UINT64_MAX: unknown. */
static uint64_t end_of(const struct rdzv *rdzv, const struct job *job)
{
    if (job->record.stopping != STOP_NONE)
        return 0;
    if (job->limit_at_us != UINT64_MAX)
        return job->limit_at_us;
    if (job->record.time_limit_us != 0)
        return rdzv->out.now_us + job->record.time_limit_us;
    return UINT64_MAX;
}

static void note_end(struct pass *pass, uint32_t node, uint64_t mask, uint64_t end_us)
{
    if (end_us == UINT64_MAX)
        pass->unknown[node] |= mask;
    else
        pass->known[node] |= mask;
    for (; end_us != UINT64_MAX && mask != 0; mask &= mask - 1)
        pass->slot_ends[node][__builtin_ctzll(mask)] = end_us;
}

/* Spares are held as long as their job runs. */
static void note_spares(const struct rdzv *rdzv, struct pass *pass)
{
    for (uint32_t i = 0; rdzv->spare_jobs > 0 && i < rdzv->node_count; i++) {
        const uint32_t node = rdzv->by_name[i];
        const struct node_spares *on = &rdzv->spares_on[node];

        for (uint32_t k = 0; k < on->count; k++) {
            const struct job *job = &rdzv->jobs[on->items[k].job];

            note_end(pass, node, on->items[k].slot_mask,
                     job->record.time_limit_us != 0 ? end_of(rdzv, job) : UINT64_MAX);
        }
    }
}

/* Sorts the taken slots of all nodes: those whose end is known, with that time, and the others. */
static void find_ends(struct rdzv *rdzv, struct pass *pass)
{
    memset(pass->known, 0, sizeof pass->known);
    memcpy(pass->unknown, pass->held, sizeof pass->unknown);
    for (uint32_t i = 0; i < rdzv->live_count; i++) {
        const struct job *job = job_live(rdzv, i);
        uint64_t end_us = end_of(rdzv, job);

        for (uint32_t k = 0; !job->ended && k < job->record.part_count; k++) {
            uint32_t node = job->gang.parts[k].node;

            if (!job->gang.parts[k].is_lost && node != NODE_NONE && end_us != 0)
                note_end(pass, node, job->record.parts[k].slot_mask, end_us);
        }
    }
    note_spares(rdzv, pass);
}

/* Adds the slots of `from` that are free first to the option until it has `count` of them. */
static void add_first(const uint64_t ends[SLOTS_PER_NODE_MAX], uint64_t from, uint32_t count,
                      struct reserve_option *option)
{
    while (from != 0 && bits_count(option->mask) < count) {
        uint32_t first = (uint32_t)__builtin_ctzll(from);

        for (uint64_t mask = from; mask != 0; mask &= mask - 1)
            if (ends[__builtin_ctzll(mask)] < ends[first])
                first = (uint32_t)__builtin_ctzll(mask);
        from &= ~(1ull << first);
        option->mask |= 1ull << first;
        option->end_us = ends[first];
    }
}

/* Chooses the slots of one node that are free first: free or soon free ones, then those with a
 * known end, then the others. */
static struct reserve_option make_option(const struct rdzv *rdzv, const struct pass *pass,
                                         uint32_t node, uint32_t count)
{
    const struct node_view *view = &rdzv->views[node];
    uint64_t taken = pass->known[node] | pass->unknown[node], rest;
    struct reserve_option option = {.node = node};

    option.mask = lowest_bits(view->able & view->offer & ~taken, count);
    option.mask |= lowest_bits(view->able & ~option.mask & ~taken, count - bits_count(option.mask));
    add_first(pass->slot_ends[node], pass->known[node] & view->able & ~pass->unknown[node], count,
              &option);
    rest = lowest_bits(pass->unknown[node] & view->able, count - bits_count(option.mask));
    option.unknown = bits_count(rest);
    option.mask |= rest;
    if (rest != 0)
        option.end_us = UINT64_MAX;
    return option;
}

static bool is_better(const struct reserve_option *a, const struct reserve_option *b)
{
    if (a->end_us != b->end_us)
        return a->end_us < b->end_us;
    if (a->unknown != b->unknown)
        return a->unknown < b->unknown;
    return a->place < b->place;
}

/* Restores the heap, whose top is the worst option. */
static void sift_down(struct reserve_option *heap, uint32_t count, uint32_t at)
{
    for (uint32_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        struct reserve_option swapped;

        if (child + 1 < count && is_better(&heap[child], &heap[child + 1]))
            child++;
        if (!is_better(&heap[at], &heap[child]))
            return;
        swapped = heap[at];
        heap[at] = heap[child];
        heap[child] = swapped;
        at = child;
    }
}

/* Collects the best options of all nodes; best[0] is the worst of them. Returns how many there
 * are. */
static uint32_t find_best(const struct rdzv *rdzv, struct pass *pass, const struct job *job)
{
    uint32_t wanted = job->record.nodes_min, count = 0;

    for (uint32_t i = 0; i < rdzv->node_count; i++) {
        uint32_t node = rdzv->by_name[i];
        struct reserve_option option;

        if (bits_count(rdzv->views[node].able) < job->record.nproc_per_node ||
            failure_excludes(rdzv, job, node))
            continue;
        option = make_option(rdzv, pass, node, job->record.nproc_per_node);
        option.place = i;
        if (count < wanted) {
            pass->best[count++] = option;
            for (uint32_t at = wanted / 2; count == wanted && at-- > 0;)
                sift_down(pass->best, wanted, at);
        } else if (is_better(&option, &pass->best[0])) {
            pass->best[0] = option;
            sift_down(pass->best, wanted, 0);
        }
    }
    return count;
}

/* Whether a job may still get the reserved slots one day. */
static bool is_valid(const struct rdzv *rdzv, const struct reservation *reservation)
{
    for (uint32_t i = 0; i < reservation->part_count; i++) {
        const struct reserved_part *part = &reservation->parts[i];

        if ((rdzv->views[part->node].able & part->mask) != part->mask)
            return false;
    }
    return true;
}

/* Sets the reservation's text to the names of the nodes in pass->best. */
static void set_text(struct rdzv *rdzv, uint32_t count)
{
    struct reservation *reservation = &rdzv->reservation;
    uint64_t places[NODES_MAX / 64] = {0};
    const char *names[NODES_PER_JOB_MAX];
    char text[sizeof reservation->text];
    uint32_t used = 0;

    for (uint32_t i = 0; i < count; i++)
        places[rdzv->pass->best[i].place / 64] |= 1ull << rdzv->pass->best[i].place % 64;
    for (uint32_t i = 0; i < rdzv->node_count; i++)
        if ((places[i / 64] >> i % 64 & 1) != 0)
            names[used++] = rdzv->nodes[rdzv->by_name[i]].name;
    assert(used == count);
    names_list(names, count, text, sizeof text);
    if (strcmp(text, reservation->text) == 0)
        return;
    memcpy(reservation->text, text, sizeof text);
    reservation->serial++;
}

bool reserve(struct rdzv *rdzv, const struct job *job)
{
    struct reservation *reservation = &rdzv->reservation;
    struct pass *pass = rdzv->pass;
    bool is_same = reservation->job_id == job->record.job_id;
    uint32_t count;

    find_ends(rdzv, pass);
    count = find_best(rdzv, pass, job);
    if (count < job->record.nodes_min) {
        reserve_nothing(rdzv);
        return false;
    }
    if (is_same && pass->best[0].end_us == UINT64_MAX && reservation->start_us == UINT64_MAX &&
        is_valid(rdzv, reservation))
        return true;
    reservation->job_id = job->record.job_id;
    reservation->serial += !is_same;
    reservation->start_us = pass->best[0].end_us;
    reservation->part_count = count;
    for (uint32_t i = 0; i < count; i++)
        reservation->parts[i] =
            (struct reserved_part){.node = pass->best[i].node, .mask = pass->best[i].mask};
    set_text(rdzv, count);
    return true;
}

void reserve_nothing(struct rdzv *rdzv)
{
    rdzv->reservation.job_id = 0;
}
