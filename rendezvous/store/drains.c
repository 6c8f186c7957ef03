/* Rows of drains: what operators have taken out of use. */
#include <assert.h>
#include <stdio.h>

#include "rendezvous/store/internal.h"

void store_write_drains(struct store *store, const struct rdzv_drain *drains, uint32_t count)
{
    assert(store->in_transaction);
    store_run(store, store_use(store, STORE_DRAIN_DROP), "drop the drains of");
    for (uint32_t i = 0; i < count; i++) {
        sqlite3_stmt *stmt = store_use(store, STORE_DRAIN_WRITE);

        (void)sqlite3_bind_text(stmt, 1, drains[i].node, -1, SQLITE_TRANSIENT);
        (void)sqlite3_bind_int64(stmt, 2, drains[i].slot);
        (void)sqlite3_bind_text(stmt, 3, drains[i].user, -1, SQLITE_TRANSIENT);
        (void)sqlite3_bind_text(stmt, 4, drains[i].reason, -1, SQLITE_TRANSIENT);
        (void)sqlite3_bind_int64(stmt, 5, drains[i].at_ms);
        store_run(store, stmt, "write a drain to");
    }
}

uint32_t store_drains(struct store *store, struct rdzv_drain *drains, uint32_t max)
{
    sqlite3_stmt *stmt = store_use(store, STORE_DRAIN_LIST);
    uint32_t count = 0;

    (void)sqlite3_bind_int64(stmt, 1, max);
    while (count < max && store_row(store, stmt, "read the drains of")) {
        struct rdzv_drain *drain = &drains[count++];

        (void)snprintf(drain->node, sizeof drain->node, "%s", store_text(stmt, 0));
        drain->slot = (uint32_t)sqlite3_column_int64(stmt, 1);
        (void)snprintf(drain->user, sizeof drain->user, "%s", store_text(stmt, 2));
        (void)snprintf(drain->reason, sizeof drain->reason, "%s", store_text(stmt, 3));
        drain->at_ms = sqlite3_column_int64(stmt, 4);
    }
    (void)sqlite3_reset(stmt);
    return count;
}
