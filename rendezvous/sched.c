/* Which job gets which slots: whole gangs, first come first served; and why one waits, in words. */
#include "rendezvous/rdzv_state.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* node2 before node10: digits compare as numbers. */
static int compare_names(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            size_t a_digits, b_digits;
            int order;

            while (*a == '0' && isdigit((unsigned char)a[1]))
                a++;
            while (*b == '0' && isdigit((unsigned char)b[1]))
                b++;
            a_digits = strspn(a, "0123456789");
            b_digits = strspn(b, "0123456789");
            if (a_digits != b_digits)
                return a_digits < b_digits ? -1 : 1;
            order = strncmp(a, b, a_digits);
            if (order != 0)
                return order;
            a += a_digits;
            b += b_digits;
            continue;
        }
        if (*a != *b)
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        a++;
        b++;
    }
    return (*a != '\0') - (*b != '\0');
}

struct candidate {
    struct node *node;
    uint64_t free_mask;
};

/* What one job can choose from, and what it took. */
struct choice {
    uint32_t fit_count;  /* nodes with enough free slots */
    uint32_t up_count;   /* nodes that are up */
    uint32_t able_count; /* nodes that would have enough were they empty */
    uint32_t best_free;  /* the most free slots of a node that does not fit */
    uint32_t closed_count;
    const struct node *closed_node; /* of one closed slot, to name; NULL: none is */
    uint32_t closed_slot;
    struct candidate fits[NODES_MAX];
};

/* What is being checked opens by itself within seconds: any other is the better one to name. */
static void note_closed(struct choice *choice, const struct node *node)
{
    uint64_t mask =
        slots_closed_mask(node) & (node->slots >= 64 ? UINT64_MAX : (1ull << node->slots) - 1);
    bool is_passing;

    choice->closed_count += bits_count(mask);
    for (; mask != 0; mask &= mask - 1) {
        uint32_t slot = (uint32_t)__builtin_ctzll(mask);

        is_passing = choice->closed_node != NULL && !choice->closed_node->is_drained &&
                     choice->closed_node->slot_states[choice->closed_slot].state == SLOT_CHECKING;
        if (choice->closed_node != NULL && !is_passing)
            return;
        choice->closed_node = node;
        choice->closed_slot = slot;
    }
}

static void look(const struct rdzv *rdzv, uint32_t wanted, struct choice *choice)
{
    memset(choice, 0, sizeof *choice);
    for (uint32_t i = 0; i < rdzv->options.nodes_max; i++) {
        struct node *node = &rdzv->nodes[i];
        uint64_t free_mask;
        uint32_t free_count;

        if (!node->used || node->state != NODE_UP || node->conn == 0)
            continue;
        free_mask = roster_free_mask(rdzv, node);
        free_count = bits_count(free_mask);
        choice->up_count++;
        choice->able_count += node->slots >= wanted;
        note_closed(choice, node);
        if (free_count >= wanted)
            choice->fits[choice->fit_count++] = (struct candidate){node, free_mask};
        else if (free_count > choice->best_free)
            choice->best_free = free_count;
    }
}

/* The smallest hole that fits first, so that large holes stay whole; then by name. */
static bool is_before(const struct candidate *a, const struct candidate *b)
{
    uint32_t a_free = bits_count(a->free_mask), b_free = bits_count(b->free_mask);

    if (a_free != b_free)
        return a_free < b_free;
    return compare_names(a->node->name, b->node->name) < 0;
}

static bool is_named_before(const struct candidate *a, const struct candidate *b)
{
    return compare_names(a->node->name, b->node->name) < 0;
}

/* Insertion sort: at most NODES_MAX, nearly sorted from step to step, and qsort would need the
 * heap. */
static void sort(struct candidate *items, uint32_t count,
                 bool (*before)(const struct candidate *, const struct candidate *))
{
    for (uint32_t i = 1; i < count; i++) {
        struct candidate item = items[i];
        uint32_t j = i;

        for (; j > 0 && before(&item, &items[j - 1]); j--)
            items[j] = items[j - 1];
        items[j] = item;
    }
}

static struct candidate take(struct choice *choice, uint32_t index)
{
    struct candidate taken = choice->fits[index];

    for (uint32_t i = index + 1; i < choice->fit_count; i++)
        choice->fits[i - 1] = choice->fits[i];
    choice->fit_count--;
    return taken;
}

static uint64_t lowest_bits(uint64_t mask, uint32_t count)
{
    uint64_t bits = 0;

    while (count-- > 0) {
        uint64_t bit = mask & (~mask + 1);

        bits |= bit;
        mask &= ~bit;
    }
    return bits;
}

static void place(const struct job *job, uint32_t node_rank, const struct candidate *on,
                  struct rdzv_part *part)
{
    uint32_t count = job->record.nproc_per_node;
    uint64_t before = 0;

    if (node_rank < job->ended_part_count &&
        strcmp(job->ended_parts[node_rank].node, on->node->name) == 0)
        before = job->ended_parts[node_rank].slot_mask;
    *part = (struct rdzv_part){.rank_base = node_rank * count, .local_count = count};
    (void)snprintf(part->node, sizeof part->node, "%s", on->node->name);
    part->slot_mask = before != 0 && (before & on->free_mask) == before
                          ? before
                          : lowest_bits(on->free_mask, count);
}

/* Nodes that had a share before keep it, with their ranks; the others go by fit, then by name. */
static void choose(const struct job *job, struct choice *choice, struct rdzv_part *parts)
{
    bool placed[NODES_PER_JOB_MAX] = {false};
    uint32_t missing = job->record.nodes;

    for (uint32_t rank = 0; rank < job->ended_part_count && rank < job->record.nodes; rank++)
        for (uint32_t i = 0; i < choice->fit_count; i++)
            if (strcmp(choice->fits[i].node->name, job->ended_parts[rank].node) == 0) {
                struct candidate same = take(choice, i);

                place(job, rank, &same, &parts[rank]);
                placed[rank] = true;
                missing--;
                break;
            }
    sort(choice->fits, choice->fit_count, is_before);
    sort(choice->fits, missing, is_named_before);
    for (uint32_t rank = 0, next = 0; rank < job->record.nodes; rank++)
        if (!placed[rank])
            place(job, rank, &choice->fits[next++], &parts[rank]);
}

static void say_why(struct job *job, const char *text)
{
    if (strcmp(job->record.reason, text) == 0)
        return;
    (void)snprintf(job->record.reason, sizeof job->record.reason, "%s", text);
    job->changed = true;
}

/* "wants 4 slots on one node", "wants 1 slot on each of 3 nodes" */
static const char *wish(struct rdzv *rdzv, const struct job *job)
{
    uint32_t slots = job->record.nproc_per_node, nodes = job->record.nodes;
    const char *plural = slots == 1 ? "" : "s";

    if (nodes == 1)
        return rdzv_text(rdzv, "wants %u slot%s on one node", slots, plural);
    return rdzv_text(rdzv, "wants %u slot%s on each of %u nodes", slots, plural, nodes);
}

/* "; 2 slots are closed: slot 1 of gpu01 is quarantined: ..." */
static const char *closed_words(struct rdzv *rdzv, const struct choice *choice)
{
    const char *why;

    if (choice->closed_node == NULL)
        return "";
    why = slots_why(rdzv, choice->closed_node, choice->closed_slot);
    if (choice->closed_count == 1)
        return rdzv_text(rdzv, "; %s", why);
    return rdzv_text(rdzv, "; %u slots are closed: %s", choice->closed_count, why);
}

static void explain(struct rdzv *rdzv, struct job *job, const struct choice *choice)
{
    uint32_t nodes = job->record.nodes;

    if (choice->up_count == 0)
        say_why(job, "no node is connected");
    else if (choice->able_count < nodes)
        say_why(job, rdzv_text(rdzv, "%s; %u of the %u connected %s that many at all",
                               wish(rdzv, job), choice->able_count, choice->up_count,
                               choice->able_count == 1 ? "has" : "have"));
    else
        say_why(job,
                rdzv_text(rdzv, "%s; %u %s them free, the best other has %u%s", wish(rdzv, job),
                          choice->fit_count, choice->fit_count == 1 ? "has" : "have",
                          choice->best_free, closed_words(rdzv, choice)));
}

static bool waits_for_slots(const struct job *job)
{
    return !job->ended && job->record.part_count == 0 && !job->record.cancel_wanted &&
           (job->record.state == JOB_RESTARTING || job->record.state == JOB_QUEUED);
}

static bool is_backing_off(const struct rdzv *rdzv, const struct job *job)
{
    return waits_for_slots(job) && job->record.state == JOB_RESTARTING &&
           rdzv->now_us < job->retry_at_us;
}

/* True: it has started, or never waited; false: it waits, and so does all behind it. */
static bool try_start(struct rdzv *rdzv, struct job *job)
{
    struct rdzv_part parts[NODES_PER_JOB_MAX];
    struct choice choice;

    look(rdzv, job->record.nproc_per_node, &choice);
    if (choice.fit_count < job->record.nodes) {
        explain(rdzv, job, &choice);
        return false;
    }
    if (!rdzv_has_room(rdzv, job->record.nodes + 8)) {
        rdzv_wake_at(rdzv, rdzv->now_us); /* the rest in the next step */
        return false;
    }
    choose(job, &choice, parts);
    generation_start(rdzv, job, parts);
    return true;
}

void sched_run(struct rdzv *rdzv)
{
    const struct job *blocked = NULL;

    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        struct job *job = &rdzv->jobs[rdzv->order[i]];

        if (is_backing_off(rdzv, job)) {
            rdzv_wake_at(rdzv, job->retry_at_us);
            blocked = blocked != NULL ? blocked : job; /* it keeps its place, and its slots */
            continue;
        }
        if (!waits_for_slots(job))
            continue;
        if (blocked != NULL)
            say_why(job,
                    rdzv_text(rdzv, "behind job %llu (%s) in the queue",
                              (unsigned long long)blocked->record.job_id, blocked->record.name));
        else if (!try_start(rdzv, job))
            blocked = job;
    }
}
