#include "rendezvous/core/roster.h"

#include <stdio.h>
#include <string.h>

#include "common/name_order.h"
#include "rendezvous/core/claim.h"
#include "rendezvous/core/slots.h"
#include "rendezvous/core/state.h"

enum {
    SILENT_MIN = 2,    /* this many nodes must be silent before the server doubts itself */
    DRAIN_US = 1000000 /* time to read what nodes sent during a pause */
};

uint32_t roster_index(const struct rdzv *rdzv, const struct node *node)
{
    ptrdiff_t index = node - rdzv->nodes;

    assert(index >= 0 && index < (ptrdiff_t)rdzv->options.nodes_max);
    return (uint32_t)index;
}

uint32_t roster_place(const struct rdzv *rdzv, const char *name)
{
    uint32_t low = 0, high = rdzv->node_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (name_order(rdzv->nodes[rdzv->by_name[middle]].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct node *roster_find(const struct rdzv *rdzv, const char *name)
{
    uint32_t at = roster_place(rdzv, name);

    if (at < rdzv->node_count && strcmp(rdzv->nodes[rdzv->by_name[at]].name, name) == 0)
        return &rdzv->nodes[rdzv->by_name[at]];
    return NULL;
}

struct node *roster_find_conn(const struct rdzv *rdzv, uint64_t conn)
{
    const uint16_t guess = rdzv->conn_nodes[conn % (2 * NODES_MAX)];

    assert(conn != 0);
    if (rdzv->views[guess].conn == conn)
        return &rdzv->nodes[guess];
    for (uint32_t i = 0; i < rdzv->options.nodes_max; i++)
        if (rdzv->views[i].conn == conn)
            return &rdzv->nodes[i];
    return NULL;
}

uint64_t roster_shims_mask(const struct node *node)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < node->shim_count; i++)
        if (node->shims[i].phase != SHIM_ENDED)
            mask |= node->shims[i].slot_mask;
    return mask;
}

void roster_part_add(struct rdzv *rdzv, uint32_t node, const struct job *job, uint32_t part)
{
    struct node_parts *on = &rdzv->parts_on[node];

    assert(on->count < SLOTS_PER_NODE_MAX);
    on->items[on->count++] = (struct node_part){(uint32_t)(job - rdzv->jobs), part};
}

void roster_part_remove(struct rdzv *rdzv, uint32_t node, const struct job *job)
{
    struct node_parts *on = &rdzv->parts_on[node];

    for (uint32_t i = 0; i < on->count; i++)
        if (&rdzv->jobs[on->items[i].job] == job) {
            on->items[i] = on->items[--on->count];
            return;
        }
    assert(false);
}

uint32_t roster_part_count(const struct rdzv *rdzv, const struct node *node)
{
    return rdzv->parts_on[roster_index(rdzv, node)].count;
}

struct job *roster_part(const struct rdzv *rdzv, const struct node *node, uint32_t index,
                        uint32_t *part)
{
    const struct node_parts *on = &rdzv->parts_on[roster_index(rdzv, node)];
    struct job *job;

    assert(index < on->count);
    job = &rdzv->jobs[on->items[index].job];
    *part = on->items[index].part;
    assert(*part < job->record.part_count);
    assert(job->gang.parts[*part].node == roster_index(rdzv, node));
    return job;
}

uint32_t roster_part_of(const struct rdzv *rdzv, const struct node *node, const struct job *job)
{
    const struct node_parts *on = &rdzv->parts_on[roster_index(rdzv, node)];

    for (uint32_t i = 0; i < on->count; i++)
        if (&rdzv->jobs[on->items[i].job] == job)
            return on->items[i].part;
    return UINT32_MAX;
}

void roster_refresh(struct rdzv *rdzv, const struct node *node)
{
    struct node_view *view = &rdzv->views[roster_index(rdzv, node)];
    struct node_view now = {.conn = node->conn, .slots = node->slots};
    uint64_t all = bits_below(node->slots);

    if (node->used && node->state != NODE_LOST)
        now.able = all & ~slots_closed_long_mask(node);
    if (node->used && node->state == NODE_UP && node->conn != 0)
        now.offer = all & ~slots_closed_mask(node) & ~roster_shims_mask(node) & ~node->held_mask;
    if (now.offer != view->offer || now.able != view->able)
        rdzv->sched_due = true;
    *view = now;
    if (now.conn != 0)
        rdzv->conn_nodes[now.conn % (2 * NODES_MAX)] = (uint16_t)roster_index(rdzv, node);
}

uint32_t roster_able_count(const struct rdzv *rdzv, uint32_t slots, uint32_t *most_slots)
{
    uint32_t count = 0;

    *most_slots = 0;
    for (uint32_t i = 0; i < rdzv->node_count; i++) {
        const struct node_view *view = &rdzv->views[rdzv->by_name[i]];

        count += view->slots == 0 || view->slots >= slots;
        *most_slots = view->slots > *most_slots ? view->slots : *most_slots;
    }
    return count;
}

static bool is_in_use(const struct rdzv *rdzv, const struct node *node)
{
    return node->conn != 0 || node->fenced > 0 || node->held_mask != 0 ||
           (node->lingers && rdzv->linger_at_us != UINT64_MAX) ||
           roster_part_count(rdzv, node) > 0 || rdzv->spares_on[roster_index(rdzv, node)].count > 0;
}

/* A free entry, or that of the unused node that was lost longest ago. NULL: full. */
static struct node *place_for_new(struct rdzv *rdzv)
{
    struct node *oldest = NULL;

    for (uint32_t i = 0; i < rdzv->options.nodes_max; i++) {
        struct node *node = &rdzv->nodes[i];

        if (!node->used)
            return node;
        if (node->state != NODE_LOST || is_in_use(rdzv, node))
            continue;
        if (oldest == NULL || node->beat_at_us < oldest->beat_at_us)
            oldest = node;
    }
    return oldest;
}

static void add_name(struct rdzv *rdzv, const struct node *node)
{
    uint32_t at = roster_place(rdzv, node->name);

    memmove(&rdzv->by_name[at + 1], &rdzv->by_name[at],
            (rdzv->node_count - at) * sizeof *rdzv->by_name);
    rdzv->by_name[at] = (uint16_t)roster_index(rdzv, node);
    rdzv->node_count++;
    if (rdzv->node_count > rdzv->node_most)
        rdzv->node_most = rdzv->node_count;
}

static void remove_name(struct rdzv *rdzv, const struct node *node)
{
    uint32_t at = roster_place(rdzv, node->name);

    assert(at < rdzv->node_count && &rdzv->nodes[rdzv->by_name[at]] == node);
    rdzv->node_count--;
    memmove(&rdzv->by_name[at], &rdzv->by_name[at + 1],
            (rdzv->node_count - at) * sizeof *rdzv->by_name);
}

/* Resets the entry to its first state. */
static void clear(const struct rdzv *rdzv, struct node *node)
{
    uint32_t index = roster_index(rdzv, node);

    for (uint64_t mask = node->closed_mask; mask != 0; mask &= mask - 1)
        memset(&node->slot_states[__builtin_ctzll(mask)], 0, sizeof *node->slot_states);
    memset(node, 0, sizeof *node);
    node->shims = node->few;
    node->many = rdzv->many_shims[index];
    node->slot_states = rdzv->slot_states[index];
    node->reasons = rdzv->slot_reasons[index];
}

static struct node *add(struct rdzv *rdzv, const char *name)
{
    struct node *node = place_for_new(rdzv);

    if (node == NULL)
        return NULL;
    if (node->used)
        remove_name(rdzv, node);
    clear(rdzv, node);
    node->used = true;
    (void)snprintf(node->name, sizeof node->name, "%s", name);
    add_name(rdzv, node);
    slots_apply_drains(rdzv, node);
    roster_refresh(rdzv, node);
    return node;
}

static void take_shims(struct node *node, const struct part_beat_shim *shims, uint32_t count)
{
    assert(count <= SHIMS_PER_NODE_MAX); /* the decoder checked it */
    node->shim_count = count;
    node->shims = count <= SHIMS_FEW ? node->few : node->many;
    if (count > 0)
        memcpy(node->shims, shims, count * sizeof *shims);
}

/* Some node may have been silent for too long at that time. */
static void expect_at(struct rdzv *rdzv, uint64_t at_us)
{
    if (at_us < rdzv->roster_at_us)
        rdzv->roster_at_us = at_us;
}

/* Logs what became of the node for all jobs on it. ddpctl recognises these lines by how they begin. */
static void tell_jobs(struct rdzv *rdzv, const struct node *node, const char *text)
{
    for (uint32_t i = 0; i < roster_part_count(rdzv, node); i++) {
        uint32_t part;
        struct job *job = roster_part(rdzv, node, i, &part);

        action_log(&rdzv->out, job->record.job_id, job->record.generation, EVENT_ABOUT_NODE "%s %s",
                   node->name, text);
        job_set_changed(rdzv, job);
    }
}

/* The node is alive now. */
static void set_alive(struct rdzv *rdzv, struct node *node)
{
    if (node->state != NODE_UP && trouble_back(&node->trouble)) {
        action_log(&rdzv->out, 0, 0, "node %s is up", node->name);
        if (node->has_beat)
            tell_jobs(rdzv, node, "answers again");
    }
    node->state = NODE_UP;
    node->unheard_us = node->has_beat ? rdzv->out.now_us - node->beat_at_us : UINT64_MAX;
    node->has_beat = true;
    node->has_lost_parts = false; /* reconcile.c compares the remaining ones with its list */
    node->beat_at_us = rdzv->out.now_us;
    node->lost_at_us = rdzv->out.now_us + rdzv->options.lost_us;
    expect_at(rdzv, rdzv->out.now_us + rdzv->options.suspect_us);
    expect_at(rdzv, node->lost_at_us);
    if (rdzv->doubts_itself)
        expect_at(rdzv, rdzv->out.now_us); /* the server may have no more reason to doubt itself */
}

/* reconcile.c stops what runs on a leaving node. */
static void take_leaving(struct rdzv *rdzv, struct node *node, bool is_leaving)
{
    if (is_leaving && !node->is_leaving) {
        node->leaving_ms = rdzv->out.wall_ms;
        action_log(&rdzv->out, 0, 0, "node %s leaves: its launcherd was told to end", node->name);
    }
    node->is_leaving = is_leaving;
}

struct node *roster_hello(struct rdzv *rdzv, uint64_t conn, const struct msg_node_hello *hello,
                          enum kinship *kin)
{
    struct node *node = roster_find(rdzv, hello->name);

    *kin = node != NULL ? claim_kinship(rdzv, node, hello) : KIN_UNKNOWN;
    if (node != NULL && claim_is_refused(rdzv, node, conn, hello, *kin))
        return NULL;
    if (node == NULL)
        node = add(rdzv, hello->name);
    if (node == NULL) {
        claim_close(rdzv, conn, STATUS_TOO_BIG)->text = "the server's table of nodes is full";
        return NULL;
    }
    trouble_hello(rdzv, &node->trouble, node->name,
                  node->has_beat && node->instance == hello->instance);
    if (!node->has_beat)
        node->state = NODE_SUSPECT; /* so that set_alive() logs it */
    claim_take(rdzv, node, *kin, hello);
    node->conn = node->newest_conn = conn;
    node->closed_at_us = 0;
    node->instance = hello->instance;
    node->pid = hello->pid;
    node->slots = hello->slots;
    node->gpus = hello->gpus;
    node->protocol = hello->protocol;
    node->drains_on_term = hello->drains_on_term;
    node->is_leaving = false; /* a new process; if it leaves, its next beat says so */
    (void)snprintf(node->address, sizeof node->address, "%s", hello->address);
    (void)snprintf(node->version, sizeof node->version, "%s", hello->version);
    set_alive(rdzv, node);
    action_add(&rdzv->out, RDZV_SEND_WELCOME)->conn = conn;
    slots_take(rdzv, node, hello->closed.items, hello->closed.count);
    take_shims(node, hello->shims.items, hello->shims.count);
    roster_refresh(rdzv, node);
    return node;
}

void roster_beat(struct rdzv *rdzv, struct node *node, const struct msg_beat *beat)
{
    struct rdzv_action *action = action_add(&rdzv->out, RDZV_SEND_BEAT_ACK);

    assert(node->conn != 0);
    action->conn = node->conn;
    action->sent_us = beat->sent_us;
    set_alive(rdzv, node);
    trouble_beat(rdzv, &node->trouble, node->name);
    slots_take(rdzv, node, beat->closed.items, beat->closed.count);
    take_shims(node, beat->shims.items, beat->shims.count);
    take_leaving(rdzv, node, beat->leaving);
    roster_refresh(rdzv, node);
}

void roster_phase(struct rdzv *rdzv, struct node *node, uint64_t job_id, uint32_t generation,
                  enum shim_phase phase)
{
    for (uint32_t i = 0; i < node->shim_count; i++) {
        struct part_beat_shim *shim = &node->shims[i];

        if (shim->job_id != job_id || shim->generation != generation)
            continue;
        if (phase == SHIM_ENDED && shim->phase != SHIM_ENDED)
            slots_left(rdzv, node, shim->slot_mask);
        shim->phase = phase;
    }
    roster_refresh(rdzv, node);
}

void roster_closed(struct rdzv *rdzv, struct node *node)
{
    const bool was_up = node->state == NODE_UP, is_news = was_up && trouble_closed(&node->trouble);

    node->conn = 0;
    node->closed_at_us = rdzv->out.now_us;
    if (roster_part_count(rdzv, node) > 0)
        rdzv->gone_at_us = rdzv->out.now_us;
    if (was_up)
        node->state = NODE_SUSPECT;
    if (is_news) {
        action_log(&rdzv->out, 0, 0, "node %s: its connection closed", node->name);
        tell_jobs(rdzv, node, "does not answer: its connection closed");
    }
    roster_refresh(rdzv, node);
}

void roster_drop(struct rdzv *rdzv, struct node *node, const char *why)
{
    claim_close(rdzv, node->conn, STATUS_PEER_LOST)->text = why;
    roster_closed(rdzv, node);
}

void roster_hold(struct rdzv *rdzv, struct node *node, uint64_t slot_mask)
{
    const uint64_t until_us = claim_lease_end_us(rdzv, node);

    if (node->held_mask == 0 || until_us > node->held_until_us)
        node->held_until_us = until_us;
    node->held_instance =
        node->held_mask == 0 || node->held_instance == node->instance ? node->instance : 0;
    node->held_by =
        node->held_mask == 0 ? node->identity : identity_join(&node->held_by, &node->identity);
    node->held_mask |= slot_mask;
    action_add(&rdzv->out, RDZV_PERSIST_HOLD)->text = node->name;
    expect_at(rdzv, node->held_until_us);
    roster_refresh(rdzv, node);
}

/* The node is one that was lost. */
void roster_restore_hold(struct rdzv *rdzv, const struct rdzv_hold *hold)
{
    struct node *node = NULL;

    if (hold->node[0] != '\0' && hold->slot_mask != 0 && roster_find(rdzv, hold->node) == NULL)
        node = add(rdzv, hold->node);
    if (node == NULL)
        return; /* damaged, or the table is full of others */
    node->state = NODE_LOST;
    node->beat_at_us = rdzv->out.now_us;
    node->identity = node->held_by = hold->identity;
    node->held_mask = hold->slot_mask;
    node->held_instance = 0;
    node->held_is_restored = node->lingers = true;
    rdzv->restored_holds++;
    node->held_until_us = rdzv->out.now_us + claim_longest_lease_us(rdzv);
    expect_at(rdzv, node->held_until_us);
    roster_refresh(rdzv, node);
}

struct node *roster_expect(struct rdzv *rdzv, const struct rdzv_part *part)
{
    struct node *node = roster_find(rdzv, part->node);
    const bool is_new = node == NULL;
    const uint64_t lease_us = claim_longest_lease_us(rdzv), lost_us = rdzv->options.lost_us;

    if (node == NULL)
        node = add(rdzv, part->node);
    if (node == NULL || node->has_beat)
        return node;
    node->identity = is_new ? part->identity : identity_join(&node->identity, &part->identity);
    node->state = NODE_SUSPECT;
    node->beat_at_us = rdzv->out.now_us;
    node->lost_at_us = rdzv->out.now_us + (lease_us > lost_us ? lease_us : lost_us);
    expect_at(rdzv, node->lost_at_us);
    roster_refresh(rdzv, node);
    return node;
}

/* Marks the node as lost. Its shims may still run. If it connects again, they are stopped (reconcile.c); if not, each
 * shim kills its workers when the lease ends. */
static void lose(struct rdzv *rdzv, struct node *node)
{
    node->state = NODE_LOST;
    node->has_lost_parts = true;
    rdzv->any_lost_parts = true;
    node->silent_us = rdzv->out.now_us - node->beat_at_us;
    node->trouble.is_quiet = false;
    action_log(&rdzv->out, 0, 0, "node %s was lost: silent for %llu s", node->name,
               (unsigned long long)(node->silent_us / 1000000));
    if (node->conn != 0)
        claim_close(rdzv, node->conn, STATUS_TIMEOUT)->text = "silent for too long";
    node->conn = 0;
    roster_refresh(rdzv, node);
}

/* Whether the node is connected and silent. A node whose connection was closed is gone, not silent. */
static bool is_silent(const struct rdzv *rdzv, const struct node *node)
{
    return node->conn != 0 && node->state != NODE_LOST &&
           rdzv->out.now_us >= node->beat_at_us + rdzv->options.suspect_us;
}

/* If several nodes, and more than half of the connected ones, are silent at once, more likely this server cannot hear
 * them. Then they count as lost only at the end of their lease. */
static void doubt(struct rdzv *rdzv)
{
    uint32_t silent = 0, here = 0;
    bool doubts;

    for (uint32_t i = 0; i < rdzv->node_count; i++) {
        const struct node *node = &rdzv->nodes[rdzv->by_name[i]];

        here += node->conn != 0 && node->state != NODE_LOST;
        silent += is_silent(rdzv, node);
    }
    doubts = silent >= SILENT_MIN && silent > here / 2;
    if (doubts && !rdzv->doubts_itself)
        action_log(
            &rdzv->out, 0, 0,
            "%u of %u nodes are silent at once, which may be the fault of this machine or its "
            "network: they have until the end of their lease",
            silent, here);
    rdzv->doubts_itself = doubts;
}

static uint64_t lost_at_us(const struct rdzv *rdzv, const struct node *node)
{
    uint64_t lease_end_us = claim_lease_end_us(rdzv, node);

    return rdzv->doubts_itself && is_silent(rdzv, node) && lease_end_us > node->lost_at_us
               ? lease_end_us
               : node->lost_at_us;
}

/* Checks one node. Returns its next deadline; UINT64_MAX: none. */
static uint64_t tick_node(struct rdzv *rdzv, struct node *node)
{
    uint64_t suspect_at_us = node->beat_at_us + rdzv->options.suspect_us;
    uint64_t at_us = lost_at_us(rdzv, node);
    char text[REASON_BYTES_MAX];

    if (node->state == NODE_LOST)
        return UINT64_MAX;
    if (rdzv->out.now_us >= at_us) {
        if (!actions_have_room(&rdzv->out, NODE_ACTIONS_MAX + JOB_ACTIONS_MAX))
            return rdzv->out.now_us; /* continue in the next step */
        lose(rdzv, node);
        return UINT64_MAX;
    }
    if (node->state != NODE_UP)
        return at_us;
    if (rdzv->out.now_us < suspect_at_us)
        return suspect_at_us < at_us ? suspect_at_us : at_us;
    if (!actions_have_room(&rdzv->out, NODE_ACTIONS_MAX))
        return rdzv->out.now_us; /* continue in the next step */
    node->state = NODE_SUSPECT;
    text_format(text, "does not answer: silent for %llu s",
                (unsigned long long)((rdzv->out.now_us - node->beat_at_us) / 1000000));
    tell_jobs(rdzv, node, text);
    roster_refresh(rdzv, node);
    return at_us;
}

void roster_shift(struct rdzv *rdzv, uint64_t paused_us)
{
    action_log(
        &rdzv->out, 0, 0,
        "this server did not run for %llu ms: nodes get that time, and one second more, before "
        "they count as silent",
        (unsigned long long)(paused_us / 1000));
    for (uint32_t i = 0; i < rdzv->node_count; i++) {
        struct node *node = &rdzv->nodes[rdzv->by_name[i]];
        uint64_t beat_at_us = node->beat_at_us + paused_us + DRAIN_US;

        if (node->state == NODE_LOST)
            continue;
        node->beat_at_us = beat_at_us < rdzv->out.now_us ? beat_at_us : rdzv->out.now_us;
        node->lost_at_us += paused_us + DRAIN_US;
    }
}

/* Gives held slots free when the lease is over. */
static uint64_t tick_held(struct rdzv *rdzv, struct node *node)
{
    if (node->held_mask != 0 && rdzv->out.now_us < node->held_until_us)
        return node->held_until_us;
    if (node->held_mask != 0 && !actions_have_room(&rdzv->out, 1))
        return rdzv->out.now_us; /* continue in the next step */
    if (node->held_mask != 0) {
        claim_drop_hold(rdzv, node);
        roster_refresh(rdzv, node);
    }
    return UINT64_MAX;
}

void roster_tick(struct rdzv *rdzv)
{
    if (rdzv->out.now_us >= rdzv->roster_at_us) {
        rdzv->roster_at_us = UINT64_MAX;
        doubt(rdzv);
        for (uint32_t i = 0; i < rdzv->node_count; i++) {
            struct node *node = &rdzv->nodes[rdzv->by_name[i]];

            expect_at(rdzv, tick_node(rdzv, node));
            expect_at(rdzv, tick_held(rdzv, node));
        }
    }
    if (rdzv->roster_at_us != UINT64_MAX)
        actions_wake_at(&rdzv->out, rdzv->roster_at_us);
}

bool roster_lists(const struct node *node, uint64_t job_id, uint32_t generation)
{
    for (uint32_t i = 0; i < node->shim_count; i++)
        if (node->shims[i].job_id == job_id && node->shims[i].generation == generation)
            return !node->shims[i].unseen;
    return false;
}

uint64_t roster_soon_mask(const struct rdzv *rdzv, const struct node *node)
{
    return node->state == NODE_UP && node->conn != 0 ? rdzv->views[roster_index(rdzv, node)].able
                                                     : 0;
}

uint64_t roster_free_mask(const struct rdzv *rdzv, const struct node *node)
{
    uint64_t mask = bits_below(node->slots) & ~slots_closed_mask(node) & ~roster_shims_mask(node);

    mask &= ~node->held_mask & ~spare_table_mask(rdzv, roster_index(rdzv, node));

    for (uint32_t i = 0; i < roster_part_count(rdzv, node); i++) {
        uint32_t part;
        const struct job *job = roster_part(rdzv, node, i, &part);

        mask &= ~job->record.parts[part].slot_mask;
    }
    return mask;
}
