/* Answers about jobs, nodes and events. Active jobs come from the core, ended ones from the
 * store. */

#include "rendezvous/server/internal.h"
#include "common/msg_version.h"
#include "common/name_order.h"

bool job_is_active(const struct server *server, uint64_t job_id)
{
    const struct rdzv_record *record = rdzv_job_record(server->core, job_id);

    return record != NULL && !rdzv_state_is_final(record->state);
}

/* One page of the ranks of a job. */
struct rank_page {
    struct part_job_rank *items; /* [RANKS_LISTED_MAX + 1]: one more than are sent */
    uint32_t first, count;       /* the ranks from `first` on */
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

/* False: the job cannot be read. */
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

/* Finds the generation whose logs show the reason: a later generation may have failed without
 * one. */
static void find_crash(struct server *server, const struct rdzv_record *record,
                       struct msg_job_info *info)
{
    struct part_failure *failures;
    uint32_t count;

    if (record->restarts == 0 && record->failed_rank < 0)
        return;
    failures = arena_alloc(&server->arena, sizeof *failures * FAILURES_KEPT_MAX);
    count = failures == NULL
                ? 0
                : store_failures(server->store, record->job_id, &server->arena, failures);
    for (uint32_t i = 0; i < count; i++) {
        if (failures[i].rank < 0)
            continue;
        info->crashed_generation = failures[i].generation;
        info->crashed_rank = (uint32_t)failures[i].rank;
    }
}

void answer_unread(struct peer *peer, uint64_t job_id)
{
    peer_error(peer, "later", "", "job %llu cannot be read now: the server's log says why",
               (unsigned long long)job_id);
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
        answer_unread(peer, job_id);
        return;
    }
    msg.job_info.jobs.items = &part;
    msg.job_info.jobs.count = 1;
    msg.job_info.more_ranks = page.count > RANKS_LISTED_MAX;
    msg.job_info.ranks.items = page.items;
    msg.job_info.ranks.count = msg.job_info.more_ranks ? RANKS_LISTED_MAX : page.count;
    msg.job_info.failed_rank = record.failed_rank;
    msg.job_info.failed_node = record.failed_node;
    msg.job_info.tail = record.after_job != 0 ? "" : record.tail; /* see after_list.h */
    msg.job_info.argv = spec.argv;
    msg.job_info.cwd = spec.cwd;
    find_crash(server, &record, &msg.job_info);
    peer_send(peer, &msg);
    arena_reset(&server->arena);
}

/* The ranks without progress for longest, among those that report progress. Returns how many. */
static uint32_t fill_moves(const struct server *server, uint64_t job_id,
                           struct part_rank_move moves[FAILED_RANKS_MAX])
{
    const struct rdzv_record *record = rdzv_job_record(server->core, job_id);
    const struct rdzv_rank *ranks = rdzv_ranks(server->core, job_id);
    uint32_t world = record->part_count > 0 ? record->nodes * record->nproc_per_node : 0;
    uint32_t now_ms = (uint32_t)(clock_boot_us() / 1000), count = 0;

    for (uint32_t i = 0; i < world; i++) {
        int32_t age_ms = (int32_t)(now_ms - ranks[i].moved_ms);
        int64_t age_us = age_ms > 0 ? (int64_t)age_ms * 1000 : 0;
        uint32_t at;

        if (ranks[i].moved_ms == 0 || ranks[i].state != RANK_RUNNING ||
            (count == FAILED_RANKS_MAX && moves[count - 1].age_us >= age_us))
            continue;
        at = count == FAILED_RANKS_MAX ? count - 1 : count++;
        for (; at > 0 && moves[at - 1].age_us < age_us; at--)
            moves[at] = moves[at - 1];
        moves[at] = (struct part_rank_move){.rank = i, .age_us = age_us};
    }
    return count;
}

static void fill_running(const struct server *server, uint64_t job_id, struct msg_why_info *why,
                         struct part_rank_move *moves)
{
    uint64_t since_us = rdzv_running_since(server->core, job_id), now_us = clock_boot_us();

    why->ran_us = since_us > now_us ? -1 : (int64_t)(now_us - since_us);
    why->moves.items = moves;
    why->moves.count = fill_moves(server, job_id, moves);
}

void answer_why(struct peer *peer, uint64_t job_id, uint32_t generation)
{
    struct server *server = peer->server;
    struct msg msg = {.type = MSG_TYPE_WHY_INFO};
    struct rdzv_record record;
    struct part_failure *failures;
    struct part_failed_rank *ranks;
    struct part_rank_move moves[FAILED_RANKS_MAX];
    struct part_job job;
    char avoided[AVOIDED_BYTES_MAX] = "";

    msg.why_info.ran_us = -1;
    msg.why_info.avoided = avoided;
    arena_reset(&server->arena);
    failures = arena_alloc(&server->arena, sizeof *failures * FAILURES_KEPT_MAX);
    ranks = arena_alloc(&server->arena, sizeof *ranks * FAILED_RANKS_MAX);
    if (failures == NULL || ranks == NULL ||
        (!job_is_active(server, job_id) &&
         !store_get_job(server->store, job_id, &server->arena, &record))) {
        answer_unread(peer, job_id);
        return;
    }
    if (job_is_active(server, job_id)) {
        rdzv_job_part(server->core, job_id, &job);
        fill_running(server, job_id, &msg.why_info, moves);
        rdzv_avoided(server->core, job_id, avoided);
    } else {
        rdzv_summary(&record, &job);
    }
    msg.why_info.jobs.items = &job;
    msg.why_info.jobs.count = 1;
    msg.why_info.failures.items = failures;
    msg.why_info.failures.count = store_failures(server->store, job_id, &server->arena, failures);
    if (generation == 0 && msg.why_info.failures.count > 0)
        generation = failures[msg.why_info.failures.count - 1].generation;
    msg.why_info.ranks_of = generation;
    msg.why_info.ranks.items = ranks;
    msg.why_info.ranks.count = store_failed_ranks(server->store, job_id, generation, &server->arena,
                                                  ranks, FAILED_RANKS_MAX);
    peer_send(peer, &msg);
    arena_reset(&server->arena);
}

/* One page of the list of nodes, and some of their slots. */
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

bool answer_has_node(const struct server *server, const char *name)
{
    return rdzv_has_node(server->core, name) || rdzv_is_away(server->core, name) ||
           refused_find(&server->refused, name, clock_boot_us()) != NULL;
}

/* What is known of a hello with that name that was refused. */
static void add_refusal(const struct server *server, struct part_node *node)
{
    const uint64_t now_us = clock_boot_us();
    const struct refused_node *refused = refused_find(&server->refused, node->name, now_us);

    if (refused != NULL)
        refused_add(refused, now_us, node);
}

void answer_node(struct peer *peer, const char *name)
{
    struct server *server = peer->server;
    uint32_t index = rdzv_node_after(server->core, name);
    struct node_page page;

    if (!page_open(&page, &server->arena)) {
        peer_error(peer, "later", "", "the server has no memory for a list of nodes");
        return;
    }
    page.node_count = 1;
    if (rdzv_has_node(server->core, name)) {
        rdzv_node_at(server->core, index - 1, clock_boot_us(), &page.nodes[0]);
        page.slot_count = rdzv_node_slots(server->core, index - 1, true, page.slots);
    } else {
        rdzv_away(server->core, name, &page.nodes[0]);
        page.slot_count = rdzv_away_slots(server->core, name, page.slots);
    }
    add_refusal(server, &page.nodes[0]);
    page_send(peer, &page, false);
}

static bool page_has_room(const struct node_page *page, uint32_t limit)
{
    return page->node_count < limit && page->slot_count + SLOTS_PER_NODE_MAX <= SLOTS_LISTED_MAX;
}

/* The next name after `name`, and before `end` unless that is NULL, that the core has not met: of a node that
 * is refused, or, `with_lost`, that is drained. NULL: there is none. */
static const char *absent_after(const struct server *server, const char *name, const char *end,
                                bool with_lost)
{
    const char *away = with_lost ? rdzv_away_after(server->core, name, end) : NULL;
    const char *refused = name;

    do {
        refused = refused_after(&server->refused, refused, end, clock_boot_us());
    } while (refused != NULL && rdzv_has_node(server->core, refused));
    if (refused == NULL || (away != NULL && name_order(away, refused) < 0))
        return away;
    return refused;
}

/* Adds these nodes. False: the page is full. */
static bool page_add_absent(struct node_page *page, const struct server *server, const char *name,
                            const char *end, uint32_t limit, bool with_lost)
{
    while ((name = absent_after(server, name, end, with_lost)) != NULL) {
        if (!page_has_room(page, limit))
            return false;
        rdzv_away(server->core, name, &page->nodes[page->node_count]);
        add_refusal(server, &page->nodes[page->node_count++]);
        page->slot_count += rdzv_away_slots(server->core, name, page->slots + page->slot_count);
    }
    return true;
}

/* Adds the index-th node with its closed slots. False: the page is full. */
static bool page_add(struct node_page *page, const struct server *server, uint32_t index,
                     const struct part_node *node, uint32_t limit)
{
    if (!page_has_room(page, limit))
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
    bool has_room = true;

    if (!page_open(&page, &server->arena)) {
        peer_error(peer, "later", "", "the server has no memory for a list of nodes");
        return;
    }
    for (uint32_t i = rdzv_node_after(server->core, after);
         has_room && i < rdzv_node_count(server->core); i++) {
        struct part_node node;

        rdzv_node_at(server->core, i, now_us, &node);
        add_refusal(server, &node);
        has_room = page_add_absent(&page, server, after, node.name, limit, with_lost);
        if (has_room && (with_lost || node.refused_ms != 0 || node.state != NODE_LOST))
            has_room = page_add(&page, server, i, &node, limit);
        after = node.name;
    }
    if (has_room)
        has_room = page_add_absent(&page, server, after, NULL, limit, with_lost);
    page_send(peer, &page, !has_room);
}

void answer_server(struct peer *peer, uint64_t request_id)
{
    const struct server *server = peer->server;
    const struct server_counts *counts = &server->counts;
    struct msg msg = {.type = MSG_TYPE_SERVER_INFO};
    struct part_server servers[SERVERS_MAX];
    struct election_view view;

    msg.server_info = (struct msg_server_info){.request_id = request_id,
                                               .version = msg_release(),
                                               .up_us = clock_boot_us() - server->opened_at_us,
                                               .jobs_active = rdzv_job_count(server->core),
                                               .submitted = counts->submitted,
                                               .succeeded = counts->succeeded,
                                               .failed = counts->failed,
                                               .cancelled = counts->cancelled,
                                               .store_writes = store_writes(server->store),
                                               .store_is_low = store_is_low(server->store),
                                               .schema = STORE_SCHEMA_VERSION,
                                               .is_of_past = rdzv_is_of_past(server->core),
                                               .past_why = rdzv_past_why(server->core),
                                               .keys_lost_ms = server->keys_lost_ms,
                                               .connections = server->peer_count};
    if (server->election != NULL)
        msg.server_info.token = (uint64_t)election_token(server->election);
    msg.server_info.servers.items = servers;
    msg.server_info.servers.count = standby_list(server, &view, servers);
    peer_send(peer, &msg);
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

void answer_question_problem(struct peer *peer, uint64_t request_id, const char *problem)
{
    struct msg msg = {
        .type = MSG_TYPE_NODE_DATA,
        .node_data = {.request_id = request_id, .problem = problem, .server_ms = clock_wall_ms()}};

    peer_send(peer, &msg);
}

void answer_input_problem(struct peer *peer, uint64_t request_id, const char *problem)
{
    struct msg msg = {.type = MSG_TYPE_INPUT_STATE,
                      .input_state = {.request_id = request_id, .problem = problem}};

    peer_send(peer, &msg);
}
