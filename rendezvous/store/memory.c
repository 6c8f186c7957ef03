/* A state in memory whose durable rows are on etcd. */
#include <stdio.h>
#include <stdlib.h>

#include "rendezvous/store/internal.h"
#include "rendezvous/store/remote.h"

enum status store_open_memory(struct store *store, struct err *err)
{
    enum status status;

    if (sqlite3_open_v2(":memory:", &store->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                        NULL) != SQLITE_OK)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the state");
    (void)sqlite3_extended_result_codes(store->db, 1);
    status = store_execute(store, "PRAGMA temp_store = MEMORY", err);
    return status == STATUS_OK ? store_make_tables(store, err) : status;
}

enum status store_make_empty(struct store **out, const struct store_lead *lead, struct err *err)
{
    struct store *store = calloc(1, sizeof *store);

    *out = NULL;
    if (store != NULL)
        store->remote = calloc(1, sizeof *store->remote);
    if (store == NULL || store->remote == NULL) {
        free(store);
        return err_set(err, STATUS_MEMORY, 0, "no memory for the state store");
    }
    store->disk = &store_disk_usual;
    store->lock = FOLDER_LOCK_NONE;
    store->room_fd = -1;
    store->survives_power = true;
    (void)snprintf(store->path, sizeof store->path, "the state in etcd under %s", lead->prefix);
    *out = store;
    return store_open_memory(store, err);
}
