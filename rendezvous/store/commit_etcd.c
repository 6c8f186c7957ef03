/* Sends the transactions of a store to etcd. */
#include <stdlib.h>

#include "common/log.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/remote.h"

static void lost(struct store *store, const struct err *err)
{
    const struct store_lead *lead = &store->remote->lead;

    if (lead->on_lost != NULL)
        lead->on_lost(err->text, lead->context);
    log_line(
        LOG_ERROR, LOG_ABOUT_NONE,
        "cannot write to %s: %s; stopping, for only etcd knows now what is stored. Nothing that "
        "was acknowledged is lost",
        store->path, err->text);
    store->disk->end(store, STORE_EXIT_CODE);
    abort();
}

void store_commit_remote(struct store *store)
{
    const uint64_t commit = store->remote->seq;
    struct err err, none;

    if (remote_commit(store->remote, &err) == STATUS_OK) {
        store_note_seen(store, false);
        return;
    }
    if (store->remote->seq == commit) /* numbers that etcd may not have are not noted as seen */
        (void)store_execute(store, "ROLLBACK", &none);
    store_note_seen(store, true);
    lost(store, &err);
}

void store_close_remote(struct store *store)
{
    if (store->remote == NULL)
        return;
    remote_close(store->remote);
    free(store->remote);
    store->remote = NULL;
}
