/* A state directory without a database, or with an empty one: it is new only if nothing shows that it had one. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "rendezvous/store/internal.h"

#define SEEN_PATH_BYTES 4200

/* SQLite drops a log whose database is missing or empty. It may have the newest commits. */
static enum status check_rest(const struct store *store, struct err *err)
{
    static const char *const ends[] = {"-wal", "-journal", "-shm"};
    const int64_t byte_count = store->disk->byte_count(store->path);
    char path[sizeof store->path + 16];

    if (byte_count == 0)
        return err_set(err, STATUS_REFUSED, 0,
                       "%.100s has 0 bytes: its state is lost. Nothing was changed. Move it and "
                       "its -wal away, and restore a backup (ddpctl restore), or begin a new "
                       "cluster: rendezvous --new-cluster",
                       store->path);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", store->path, ends[i]);
        if (store->disk->byte_count(path) >= 0)
            return err_set(err, STATUS_REFUSED, 0,
                           "%.90s is gone, but its %s (%" PRId64
                           " bytes) is there. Nothing was changed. Put state.db back, or move the "
                           "rest away and restore a backup (ddpctl restore), or begin anew: "
                           "rendezvous --new-cluster",
                           store->path, ends[i] + 1, store->disk->byte_count(path));
    }
    return STATUS_OK;
}

/* A restore was killed before its state.db was there. An administrator who makes a state does not mind. */
static enum status check_restore(const struct store *store, struct err *err)
{
    char path[sizeof store->path + 16];

    (void)snprintf(path, sizeof path, "%s" STORE_RESTORING_END, store->path);
    if (store->is_wanted_new || store->disk->byte_count(path) < 0)
        return STATUS_OK;
    return err_set(err, STATUS_REFUSED, 0,
                   "%.90s is missing, for a restore of a backup was interrupted here (its "
                   "state.db" STORE_RESTORING_END
                   " is left). Restore again (ddpctl restore), or begin a "
                   "new cluster: rendezvous --new-cluster",
                   store->path);
}

/* Whether the directory remembers a state. `what` it then is, and what to do. */
static enum status check_seen(const struct store *store, const char *dir, const char *name,
                              const char *what, const char *remedy, struct err *err)
{
    char path[SEEN_PATH_BYTES];
    struct seen seen;
    struct err why;
    enum status status;

    (void)snprintf(path, sizeof path, "%.4000s/%s", dir, name);
    status = store->disk->seen_read(path, &seen, NULL, &why);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (status != STATUS_OK)
        return err_set(
            err, STATUS_REFUSED, why.code,
            "%.80s is missing, and nobody knows whether it was there: %.80s. Look at that; "
            "for a new cluster: rendezvous --new-cluster",
            store->path, why.text);
    return err_set(err, STATUS_REFUSED, 0, "%.80s is missing, but %s cluster %.8s... (%s). %s",
                   store->path, what, seen.cluster, name, remedy);
}

enum status store_check_new(const struct store *store, const char *dir, struct err *err)
{
    enum status status = check_rest(store, err);

    if (status == STATUS_OK)
        status = check_restore(store, err);
    if (status != STATUS_OK || store->is_wanted_new || store->disk->seen_read == NULL)
        return status;
    status = check_seen(store, dir, SEEN_FILE_STATE, "it was the state of",
                        "Put it back, or restore a backup (ddpctl restore), or begin a new "
                        "cluster: rendezvous --new-cluster",
                        err);
    return status == STATUS_OK
               ? check_seen(store, dir, SEEN_FILE_ETCD, "this server used a state on etcd,",
                            "Start it with --store, or make a state here: ddpctl restore, or "
                            "rendezvous --new-cluster",
                            err)
               : status;
}
