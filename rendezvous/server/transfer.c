#include "rendezvous/server/transfer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/io/conn.h"
#include "rendezvous/store/backup.h"

#define PATIENCE_US 15000000u
#define LEASE_S 60u
#define RENEW_US 10000000u
#define QUOTA_BYTES (UINT64_C(2) << 30) /* nothing depends on it: no new work is accepted here */

struct transfer {
    const struct transfer_options *options;
    struct etcd_place place;
    struct etcd_client *client;
    int64_t lease;
    uint64_t renewed_at_us;
    struct store *store; /* a store that only this process uses */
    struct backup_facts facts;
};

/* -- on etcd: holds the lead, so that no server runs -- */

/* Called before each request. Renews the lease if that is due. Returns when the lease ends (boot
 * clock). */
static uint64_t until_us(void *context)
{
    struct transfer *transfer = context;
    uint64_t now_us = clock_boot_us();
    struct err err;

    if (now_us > transfer->renewed_at_us + RENEW_US &&
        etcd_lease_keep(transfer->client, transfer->lease, now_us + PATIENCE_US, NULL, &err) ==
            STATUS_OK)
        transfer->renewed_at_us = now_us;
    return transfer->renewed_at_us + LEASE_S * UINT64_C(1000000);
}

/* The value of the leader key, for people: nobody answers at that address. */
#define HOLDER "none\nddpctl "
static const char backup_holds[] = HOLDER "backup", restore_holds[] = HOLDER "restore";

/* `value` is that of the leader key. */
static enum status refuse(struct etcd_bytes value, struct err *err)
{
    const char *end = memchr(value.bytes, '\n', value.byte_count);
    const int head = (int)(end != NULL ? end - value.bytes : (ptrdiff_t)value.byte_count);

    if (value.byte_count >= sizeof HOLDER - 1 &&
        memcmp(value.bytes, HOLDER, sizeof HOLDER - 1) == 0)
        return err_set(
            err, STATUS_BUSY, 0,
            "a ddpctl %.*s of the state on this etcd is under way, or was interrupted in the "
            "last %u s: let it end, or try again in %u s",
            (int)(value.byte_count - (sizeof HOLDER - 1) < 40
                      ? value.byte_count - (sizeof HOLDER - 1)
                      : 40),
            value.bytes + sizeof HOLDER - 1, LEASE_S, LEASE_S);
    return err_set(err, STATUS_BUSY, 0,
                   "a server leads on this etcd (%.*s): stop all servers of this state first", head,
                   value.bytes);
}

static enum status claim(struct transfer *transfer, int64_t *revision, struct err *err)
{
    char key[ETCD_PREFIX_BYTES_MAX + 16];
    struct etcd_compare free_key = {.target = ETCD_CREATED};
    struct etcd_op put = {.kind = ETCD_PUT,
                          .value = etcd_text(transfer->options->is_restore ? restore_holds
                                                                           : backup_holds)},
                   get = {.kind = ETCD_RANGE};
    struct etcd_txn txn = {&free_key, &put, &get, 1, 1, 1};
    struct etcd_answer answer;
    struct arena arena = {0};
    enum status status;

    (void)snprintf(key, sizeof key, "%sleader", transfer->place.prefix);
    free_key.key = put.key = get.key = etcd_text(key);
    transfer->renewed_at_us = clock_boot_us();
    status = etcd_lease_grant(transfer->client, LEASE_S, clock_boot_us() + PATIENCE_US,
                              &transfer->lease, err);
    put.lease = transfer->lease;
    if (status == STATUS_OK)
        status = etcd_transact(transfer->client, &txn, clock_boot_us() + PATIENCE_US, &arena,
                               &answer, err);
    if (status == STATUS_OK && answer.is_met)
        *revision = answer.revision;
    else if (status == STATUS_OK && answer.row_count == 1 &&
             answer.rows[0].lease == transfer->lease) /* an earlier copy of the request made it */
        *revision = answer.rows[0].created;
    else if (status == STATUS_OK)
        status = refuse(answer.row_count > 0 ? answer.rows[0].value : etcd_text(""), err);
    arena_reset(&arena);
    return status;
}

static enum status open_alone(struct transfer *transfer, struct err *err)
{
    const struct transfer_options *options = transfer->options;
    struct store_lead lead = {.client = transfer->client,
                              .prefix = transfer->place.prefix,
                              .quota_bytes = QUOTA_BYTES,
                              .is_restore = options->is_restore && options->path != NULL,
                              .until_us = until_us,
                              .context = transfer};
    enum status status;

    if (transfer->client == NULL)
        return options->is_restore ? (options->path != NULL ? store_open_restore : store_open_new)(
                                         &transfer->store, options->state_dir, err)
                                   : store_open(&transfer->store, options->state_dir, true, err);
    status = claim(transfer, &lead.revision, err);
    return status == STATUS_OK ? store_open_etcd(&transfer->store, &lead, err) : status;
}

/* -- backup and restore -- */

static enum status back_up(struct transfer *transfer, struct err *err)
{
    const struct transfer_options *options = transfer->options;
    int64_t now_ms = clock_wall_ms();
    enum status status;

    if (!options->is_move)
        return transfer->client != NULL
                   ? backup_etcd(transfer->client, transfer->place.prefix, options->path, now_ms,
                                 &transfer->facts, err)
                   : backup_dir(options->state_dir, options->path, now_ms, &transfer->facts, err);
    status = open_alone(transfer, err);
    if (status == STATUS_OK)
        status = backup_move(transfer->store, options->path, now_ms, &transfer->facts, err);
    return status;
}

static enum status restore(struct transfer *transfer, struct err *err)
{
    enum status status = backup_check(transfer->options->path, &transfer->facts, err);

    if (status == STATUS_OK)
        status = open_alone(transfer, err);
    if (status == STATUS_OK)
        status = backup_restore(transfer->store, transfer->options->path, clock_wall_ms(),
                                &transfer->facts, err);
    return status;
}

/* An administrator's word that the state that was here is given up. */
static enum status make_new(struct transfer *transfer, struct err *err)
{
    enum status status = open_alone(transfer, err);

    return status == STATUS_OK ? backup_check_new(transfer->store, err) : status;
}

static void tell(const struct transfer *transfer)
{
    const struct transfer_options *options = transfer->options;
    const struct backup_facts *facts = &transfer->facts;
    const char *place = transfer->client != NULL ? options->etcd.url : options->state_dir;

    if (options->path == NULL && transfer->client == NULL && !store_was_made(transfer->store))
        (void)printf("nothing to do: %s has the new cluster %s already, without jobs and keys\n",
                     place, store_cluster(transfer->store));
    else if (options->path == NULL)
        (void)printf("made: the new cluster %s, without jobs and keys\n",
                     store_cluster(transfer->store));
    else if (!options->is_restore)
        (void)printf("%s: cluster %s of %s: %" PRIu64 " jobs, %" PRIu64 " rows%s\n", options->path,
                     facts->cluster, place, facts->job_count, facts->row_count,
                     options->is_move ? "; this state was moved: no server uses it any more" : "");
    else
        (void)printf("restored: cluster %s in %s: %" PRIu64 " jobs, %" PRIu64 " rows, %s%s%s\n",
                     facts->is_moved ? facts->cluster : store_cluster(transfer->store), place,
                     facts->job_count, facts->row_count,
                     facts->is_moved ? "as they were moved: running jobs go on"
                                     : "of a copy: running jobs start again from their checkpoints",
                     facts->was_moved && !facts->is_moved
                         ? "; the backup of the moved state is not taken as such, for "
                         : "",
                     facts->why_copy);
}

enum status transfer_run(const struct transfer_options *options, struct err *err)
{
    struct transfer transfer = {.options = options};
    struct err late;
    enum status status = STATUS_OK;

    if (options->etcd.url != NULL)
        status = etcd_place_make(&transfer.place, &options->etcd, err);
    if (status == STATUS_OK && options->etcd.url != NULL)
        status = etcd_files_check(&transfer.place.options, err);
    if (status == STATUS_OK && options->etcd.url != NULL)
        status = etcd_open(&transfer.client, &transfer.place.options, err);
    if (status == STATUS_OK)
        status = options->path == NULL ? make_new(&transfer, err)
                 : options->is_restore ? restore(&transfer, err)
                                       : back_up(&transfer, err);
    if (status == STATUS_OK) {
        tell(&transfer);
        if (fflush(stdout) != 0)
            status = err_set(err, STATUS_IO, errno,
                             "it is done, but that cannot be written to standard output: %s",
                             strerror(errno));
    }
    store_close(&transfer.store);
    if (transfer.lease != 0)
        (void)etcd_lease_revoke(transfer.client, transfer.lease, clock_boot_us() + PATIENCE_US,
                                &late);
    etcd_close(&transfer.client);
    return status;
}
