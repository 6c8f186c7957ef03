/* Rows of holds: slots that an earlier launcherd of a node may still use. */
#include <assert.h>
#include <stdio.h>

#include "rendezvous/store/internal.h"

void store_write_hold(struct store *store, const struct rdzv_hold *hold)
{
    const bool is_none = hold->slot_mask == 0;
    sqlite3_stmt *stmt = store_use(store, is_none ? STORE_HOLD_DROP : STORE_HOLD_WRITE);

    assert(store->in_transaction);
    (void)sqlite3_bind_text(stmt, 1, hold->node, -1, SQLITE_TRANSIENT);
    if (!is_none) {
        (void)sqlite3_bind_int64(stmt, 2, (sqlite3_int64)hold->identity.machine);
        (void)sqlite3_bind_int64(stmt, 3, (sqlite3_int64)hold->identity.boot);
        (void)sqlite3_bind_int64(stmt, 4, (sqlite3_int64)hold->identity.state);
        (void)sqlite3_bind_int64(stmt, 5, (sqlite3_int64)hold->slot_mask);
    }
    store_run(store, stmt, is_none ? "drop a hold of" : "write a hold to");
}

bool store_hold_after(struct store *store, const char *node, struct rdzv_hold *hold)
{
    sqlite3_stmt *stmt = store_use(store, STORE_HOLD_AFTER);
    bool is_there;

    (void)sqlite3_bind_text(stmt, 1, node, -1, SQLITE_TRANSIENT);
    is_there = store_row(store, stmt, "read the holds of");
    if (is_there) {
        *hold = (struct rdzv_hold){
            .identity = {.machine = (uint64_t)sqlite3_column_int64(stmt, 1),
                         .boot = (uint64_t)sqlite3_column_int64(stmt, 2),
                         .state = (uint64_t)sqlite3_column_int64(stmt, 3)},
            .slot_mask = (uint64_t)sqlite3_column_int64(stmt, 4),
        };
        (void)snprintf(hold->node, sizeof hold->node, "%s", store_text(stmt, 0));
    }
    (void)sqlite3_reset(stmt);
    return is_there;
}
