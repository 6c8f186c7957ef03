/* Opens a store on etcd: SQLite in memory as a copy of the rows in etcd. */
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/past_key.h"
#include "rendezvous/store/remote_internal.h"
#include "rendezvous/store/store_copy.h"

/* The first commit: the rows that every state has. */
static enum status make_new(struct store *store, struct err *err)
{
    char cluster[33], text[128];
    enum status status = store_make_cluster(cluster, err);

    if (status != STATUS_OK)
        return status;
    (void)snprintf(text, sizeof text, "INSERT INTO main.meta VALUES ('cluster', '%s')", cluster);
    status = store_execute(store, text, err);
    return status == STATUS_OK ? remote_commit(store->remote, err) : status;
}

enum status store_read_principals(const struct store_lead *lead, store_on_principal *on_principal,
                                  void *context, struct err *err)
{
    static const char *const tables[] = {"meta", "principals", "secrets"};
    struct store *store;
    enum status status = store_make_empty(&store, lead, err);

    if (store == NULL)
        return status;
    if (status == STATUS_OK)
        status = remote_read(store->remote, store->db, lead, tables,
                             sizeof tables / sizeof tables[0], err);
    if (status == STATUS_OK)
        status = store_prepare(store, err);
    if (status == STATUS_OK)
        (void)store_principals(store, on_principal, context);
    store_release(store);
    return status;
}

/* Takes the rows that this server kept while it stood by; NULL: all rows have to be read. */
static struct store *take_copy(const struct store_lead *lead)
{
    struct store *store = lead->copy != NULL ? store_copy_take(lead->copy, lead->revision) : NULL;
    struct err err;

    if (store == NULL || remote_adopt(store->remote, lead, &err) == STATUS_OK)
        return store;
    log_line(LOG_WARNING, LOG_ABOUT_NONE, "the copy of the rows is of no use (%s): reading them",
             err.text);
    store_release(store);
    return NULL;
}

/* Late, so that hardly any standby can write it after that and before the first commit, which it would prevent. */
static enum status read_past(struct store *store, struct past_key *past, struct err *err)
{
    struct remote *remote = store->remote;
    enum status status =
        past_key_read(remote->lead.client, remote->lead.prefix, remote_deadline(remote), past, err);

    remote->past_at = past->at;
    return status;
}

enum status store_open_etcd(struct store **out, const struct store_lead *lead, struct err *err)
{
    struct store *store = take_copy(lead);
    struct past_key past = {.at = 0};
    enum status status = STATUS_OK;

    if (store != NULL)
        store->is_newest = store->has_followed; /* until now; else the rows may be of the past */
    if (store == NULL) {
        status = store_make_empty(&store, lead, err);
        if (store == NULL)
            return status;
        if (status == STATUS_OK)
            status = remote_open(store->remote, store->db, lead, err);
    }
    if (status == STATUS_OK)
        status = read_past(store, &past, err);
    if (status == STATUS_OK && store->remote->is_fresh)
        status = store_check_fresh(store, err);
    if (status == STATUS_OK && store->remote->is_fresh)
        store->is_newest = true;
    if (status == STATUS_OK && store->remote->is_fresh)
        status = make_new(store, err);
    else if (status == STATUS_OK)
        status = store_check_seen(store, &past, err);
    if (status == STATUS_OK)
        status = store_prepare(store, err);
    if (status != STATUS_OK) {
        store_release(store);
        return status;
    }
    *out = store;
    return STATUS_OK;
}
