/* Rows of ranks and of events. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/store/internal.h"

static enum rank_state read_state(const char *name)
{
    enum rank_state state;

    return rank_state_parse(name, &state) ? state : RANK_LOST;
}

static void write_rank(struct store *store, uint64_t job_id, uint32_t generation,
                       const struct rdzv_part *part, uint32_t local_rank,
                       const struct rdzv_rank *rank, int64_t failed_ms)
{
    sqlite3_stmt *stmt = store_use(store, STORE_RANK_WRITE);

    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)job_id);
    (void)sqlite3_bind_int64(stmt, 2, generation);
    (void)sqlite3_bind_int64(stmt, 3, part->rank_base + local_rank);
    (void)sqlite3_bind_int64(stmt, 4, local_rank);
    (void)sqlite3_bind_text(stmt, 5, part->node, -1, SQLITE_TRANSIENT);
    (void)sqlite3_bind_int64(stmt, 6, rdzv_part_slot(part, local_rank));
    (void)sqlite3_bind_int64(stmt, 7, rank->pid);
    (void)sqlite3_bind_text(stmt, 8, rank_state_name((enum rank_state)rank->state), -1,
                            SQLITE_STATIC);
    (void)sqlite3_bind_int64(stmt, 9, rank->exit_code);
    (void)sqlite3_bind_int64(stmt, 10, rank->signal);
    (void)sqlite3_bind_int64(stmt, 11, failed_ms);
    store_run(store, stmt, "write a rank to");
}

/* When the rank failed, on the wall clock; 0: not known. */
static int64_t failed_ms(const struct rdzv_rank *rank, struct store_clock clock)
{
    if (rank->failed_ms == 0)
        return 0;
    return clock.wall_ms - (int32_t)((uint32_t)(clock.boot_us / 1000) - rank->failed_ms);
}

void store_write_ranks(struct store *store, uint64_t job_id, uint32_t generation,
                       const struct rdzv_part *parts, uint32_t part_count,
                       const struct rdzv_rank *ranks, struct store_clock clock)
{
    uint32_t i, local_rank;

    assert(store->in_transaction);
    for (i = 0; i < part_count; i++)
        for (local_rank = 0; local_rank < parts[i].local_count; local_rank++)
            write_rank(store, job_id, generation, &parts[i], local_rank,
                       &ranks[parts[i].rank_base + local_rank],
                       failed_ms(&ranks[parts[i].rank_base + local_rank], clock));
}

void store_place_ranks(struct store *store, const struct rdzv_record *record)
{
    static const struct rdzv_rank waiting = {.state = RANK_WAITING};
    char node[NODE_NAME_BYTES_MAX];
    uint32_t i, local_rank;

    if (record->part_count == 0 ||
        store_rank_node(store, record->job_id, record->generation, 0, node))
        return;
    for (i = 0; i < record->part_count; i++)
        for (local_rank = 0; local_rank < record->parts[i].local_count; local_rank++)
            write_rank(store, record->job_id, record->generation, &record->parts[i], local_rank,
                       &waiting, 0);
}

bool store_rank_node(struct store *store, uint64_t job_id, uint32_t generation, uint32_t rank,
                     char node[NODE_NAME_BYTES_MAX])
{
    sqlite3_stmt *stmt = store_use(store, STORE_RANK_NODE);
    bool found;

    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)job_id);
    (void)sqlite3_bind_int64(stmt, 2, generation);
    (void)sqlite3_bind_int64(stmt, 3, rank);
    found = store_row(store, stmt, "find a rank in");
    if (found)
        (void)snprintf(node, NODE_NAME_BYTES_MAX, "%s", store_text(stmt, 0));
    (void)sqlite3_reset(stmt);
    return found;
}

static const char *keep_column(sqlite3_stmt *stmt, int column, struct arena *arena)
{
    const char *text = store_text(stmt, column);

    return arena_text(arena, text, strlen(text));
}

uint32_t store_ranks(struct store *store, uint64_t job_id, uint32_t generation, uint32_t first,
                     struct arena *arena, struct part_job_rank *ranks, uint32_t max)
{
    sqlite3_stmt *stmt = store_use(store, STORE_RANK_LIST);
    uint32_t count = 0;

    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)job_id);
    (void)sqlite3_bind_int64(stmt, 2, generation);
    (void)sqlite3_bind_int64(stmt, 3, first);
    (void)sqlite3_bind_int64(stmt, 4, max);
    while (count < max && store_row(store, stmt, "read the ranks of")) {
        const char *node = keep_column(stmt, 2, arena);

        ranks[count++] = (struct part_job_rank){
            .rank = (uint32_t)sqlite3_column_int64(stmt, 0),
            .local_rank = (uint32_t)sqlite3_column_int64(stmt, 1),
            .node = node != NULL ? node : "",
            .slot = (uint32_t)sqlite3_column_int64(stmt, 3),
            .pid = (uint32_t)sqlite3_column_int64(stmt, 4),
            .state = read_state(store_text(stmt, 5)),
            .exit_code = (int32_t)sqlite3_column_int64(stmt, 6),
            .signal = (uint32_t)sqlite3_column_int64(stmt, 7),
        };
    }
    (void)sqlite3_reset(stmt);
    return count;
}

uint64_t store_write_event(struct store *store, int64_t at_ms, uint64_t job_id, uint32_t generation,
                           const char *text)
{
    sqlite3_stmt *stmt = store_use(store, STORE_EVENT_WRITE);
    uint64_t id;

    assert(store->in_transaction);
    if (store->is_low)
        return store->next_event_id - 1; /* the log has it */
    id = store->next_event_id++;
    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)id);
    (void)sqlite3_bind_int64(stmt, 2, at_ms);
    (void)sqlite3_bind_int64(stmt, 3, (sqlite3_int64)job_id);
    (void)sqlite3_bind_int64(stmt, 4, generation);
    (void)sqlite3_bind_text(stmt, 5, text, -1, SQLITE_TRANSIENT);
    store_run(store, stmt, "write an event to");
    store->seen.event_id = id;
    if (id % 1000 == 0 && id > STORE_EVENTS_MAX) {
        stmt = store_use(store, STORE_EVENT_DROP);
        (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)(id - STORE_EVENTS_MAX));
        store_run(store, stmt, "drop old events of");
    }
    return id;
}

uint64_t store_last_event_id(const struct store *store)
{
    return store->next_event_id - 1;
}

uint32_t store_events(struct store *store, struct store_viewer viewer, uint64_t job_id,
                      uint64_t after_id, uint32_t limit, struct arena *arena,
                      struct part_event *events)
{
    sqlite3_stmt *stmt = store_use(store, job_id != 0 ? STORE_EVENT_LIST_JOB : STORE_EVENT_LIST);
    uint32_t count = 0;

    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)after_id);
    (void)sqlite3_bind_int(stmt, 2, viewer.sees_all);
    (void)sqlite3_bind_text(stmt, 3, viewer.user, -1, SQLITE_TRANSIENT);
    (void)sqlite3_bind_int64(stmt, 4, limit);
    if (job_id != 0)
        (void)sqlite3_bind_int64(stmt, 5, (sqlite3_int64)job_id);
    while (count < limit && store_row(store, stmt, "read the events of")) {
        const char *text = keep_column(stmt, 4, arena);

        events[count++] = (struct part_event){
            .id = (uint64_t)sqlite3_column_int64(stmt, 0),
            .at_ms = sqlite3_column_int64(stmt, 1),
            .job_id = (uint64_t)sqlite3_column_int64(stmt, 2),
            .generation = (uint32_t)sqlite3_column_int64(stmt, 3),
            .text = text != NULL ? text : "",
        };
    }
    (void)sqlite3_reset(stmt);
    return count;
}
