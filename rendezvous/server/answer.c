/* Answers about jobs, nodes and events: the core has those that are active, the store those that
 * ended. */
#include <assert.h>

#include "rendezvous/server/internal.h"

bool job_is_active(const struct server *server, uint64_t job_id)
{
    const struct rdzv_record *record = rdzv_job_record(server->core, job_id);

    return record != NULL && !rdzv_state_is_final(record->state);
}

/* One page of the ranks of a job. */
struct rank_page {
    struct part_job_rank *items; /* [RANKS_LISTED_MAX + 1]: one more than are sent */
    uint32_t first, count;       /* of `first` and behind */
};

static void fill_part(struct rank_page *page, const struct rdzv_part *part,
                      const struct rdzv_rank *ranks)
{
    for (uint32_t i = 0; i < part->local_count && page->count <= RANKS_LISTED_MAX; i++) {
        const struct rdzv_rank *rank = &ranks[part->rank_base + i];

        if (part->rank_base + i < page->first)
            continue;
        page->items[page->count++] = (struct part_job_rank){
            .rank = part->rank_base + i,
            .local_rank = i,
            .node = part->node,
            .slot = rdzv_part_slot(part, i),
            .pid = rank->pid,
            .state = (enum rank_state)rank->state,
            .exit_code = rank->exit_code,
            .signal = rank->signal,
        };
    }
}

static void fill_ranks(struct rank_page *page, const struct rdzv_record *record,
                       const struct rdzv_rank *ranks)
{
    for (uint32_t i = 0; i < record->part_count; i++)
        if (record->parts[i].rank_base + record->parts[i].local_count > page->first)
            fill_part(page, &record->parts[i], ranks);
}

/* False: it cannot be read. */
static bool fill_job(struct server *server, uint64_t job_id, struct rank_page *page,
                     struct rdzv_record *record, struct part_job *part, uint64_t *version)
{
    if (job_is_active(server, job_id)) {
        *record = *rdzv_job_record(server->core, job_id);
        rdzv_job_part(server->core, job_id, part);
        fill_ranks(page, record, rdzv_ranks(server->core, job_id));
        *version = server->version_base + rdzv_job_version(server->core, job_id);
        return true;
    }
    if (!store_get_job(server->store, job_id, &server->arena, record))
        return false;
    rdzv_summary(record, part);
    page->count = store_ranks(server->store, job_id, record->generation, page->first,
                              &server->arena, page->items, RANKS_LISTED_MAX + 1);
    *version = VERSION_ENDED;
    return true;
}

void answer_job(struct peer *peer, uint64_t job_id, uint32_t first_rank)
{
    struct server *server = peer->server;
    struct msg msg = {.type = MSG_TYPE_JOB_INFO};
    struct rank_page page = {.first = first_rank};
    struct rdzv_record record;
    struct store_spec spec;
    struct part_job part;

    arena_reset(&server->arena);
    page.items = arena_alloc(&server->arena, sizeof *page.items * (RANKS_LISTED_MAX + 1));
    if (store_spec(server->store, job_id, false, &server->arena, &spec) != STATUS_OK)
        spec = (struct store_spec){
            .cwd = ""}; /* where it matters, the job has failed with that reason */
    if (page.items == NULL ||
        !fill_job(server, job_id, &page, &record, &part, &msg.job_info.version)) {
        peer_error(peer, "internal", "", "job %llu cannot be read", (unsigned long long)job_id);
        return;
    }
    msg.job_info.jobs.items = &part;
    msg.job_info.jobs.count = 1;
    msg.job_info.more_ranks = page.count > RANKS_LISTED_MAX;
    msg.job_info.ranks.items = page.items;
    msg.job_info.ranks.count = msg.job_info.more_ranks ? RANKS_LISTED_MAX : page.count;
    msg.job_info.failed_rank = record.failed_rank;
    msg.job_info.failed_node = record.failed_node;
    msg.job_info.tail = record.tail;
    msg.job_info.argv = spec.argv;
    msg.job_info.cwd = spec.cwd;
    peer_send(peer, &msg);
    arena_reset(&server->arena);
}

/* One page of the list of nodes: the nodes, and slots of theirs. */
struct node_page {
    struct part_node *nodes; /* [NODES_LISTED_MAX] */
    struct part_slot *slots; /* [SLOTS_LISTED_MAX] */
    uint32_t node_count, slot_count;
};

static bool page_open(struct node_page *page, struct arena *arena)
{
    arena_reset(arena);
    *page = (struct node_page){
        .nodes = arena_alloc(arena, sizeof *page->nodes * NODES_LISTED_MAX),
        .slots = arena_alloc(arena, sizeof *page->slots * SLOTS_LISTED_MAX),
    };
    return page->nodes != NULL && page->slots != NULL;
}

static void page_send(struct peer *peer, const struct node_page *page, bool more)
{
    struct msg msg = {.type = MSG_TYPE_NODES};

    msg.nodes.nodes.items = page->nodes;
    msg.nodes.nodes.count = page->node_count;
    msg.nodes.slots.items = page->slots;
    msg.nodes.slots.count = page->slot_count;
    msg.nodes.more = more;
    peer_send(peer, &msg);
    arena_reset(&peer->server->arena);
}

void answer_node(struct peer *peer, const char *name)
{
    struct server *server = peer->server;
    uint32_t index = rdzv_node_after(server->core, name);
    struct node_page page;

    if (!page_open(&page, &server->arena)) {
        peer_error(peer, "internal", "", "no memory for a list of nodes");
        return;
    }
    assert(index > 0); /* it is in the core's table */
    rdzv_node_at(server->core, index - 1, clock_boot_us(), &page.nodes[0]);
    page.node_count = 1;
    page.slot_count = rdzv_node_slots(server->core, index - 1, true, page.slots);
    page_send(peer, &page, false);
}

/* Adds a node with its closed slots. False: the page is full. */
static bool page_add(struct node_page *page, const struct server *server, uint32_t index,
                     const struct part_node *node, uint32_t limit)
{
    if (page->node_count == limit || page->slot_count + SLOTS_PER_NODE_MAX > SLOTS_LISTED_MAX)
        return false;
    page->nodes[page->node_count++] = *node;
    page->slot_count += rdzv_node_slots(server->core, index, false, page->slots + page->slot_count);
    return true;
}

void answer_nodes(struct peer *peer, bool with_lost, const char *after, uint32_t limit)
{
    struct server *server = peer->server;
    uint64_t now_us = clock_boot_us();
    struct node_page page;
    bool more = false;

    if (!page_open(&page, &server->arena)) {
        peer_error(peer, "internal", "", "no memory for a list of nodes");
        return;
    }
    for (uint32_t i = rdzv_node_after(server->core, after);
         !more && i < rdzv_node_count(server->core); i++) {
        struct part_node node;

        rdzv_node_at(server->core, i, now_us, &node);
        if (with_lost || node.state != NODE_LOST)
            more = !page_add(&page, server, i, &node, limit);
    }
    page_send(peer, &page, more);
}

bool answer_events(struct peer *peer, uint64_t job_id, uint64_t after_id, uint32_t limit, bool now)
{
    struct server *server = peer->server;
    struct msg msg = {.type = MSG_TYPE_EVENTS};
    struct part_event *events;
    bool is_answer;

    arena_reset(&server->arena);
    events = arena_alloc(&server->arena, sizeof *events * limit);
    if (events != NULL)
        msg.events.events.count = store_events(server->store, peer_viewer(peer), job_id, after_id,
                                               limit, &server->arena, events);
    msg.events.events.items = events;
    is_answer = now || msg.events.events.count > 0;
    if (is_answer)
        peer_send(peer, &msg);
    arena_reset(&server->arena);
    return is_answer;
}
