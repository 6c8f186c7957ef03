/* Some of the runs also keep the server's rows in the real store, on a disk in memory that loses
 * unsynced data (tests/lib/disk_vfs.h). After each crash the server starts from the rows that the
 * store returns; these must be the committed rows. */
#include "tests/sim/sim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/store.h"
#include "tests/lib/disk_vfs.h"

#define EVERY 4u

static struct store *store; /* of this run; NULL: the run uses none */
static struct arena records;

static void on_end(struct store *ended, int code)
{
    (void)ended;
    (void)code;
    abort(); /* this disk fails only by losing power */
}

static void open_store(struct sim *sim)
{
    struct err err = {.text = ""};

    if (store_open_on(&store, disk_table(on_end), "/state", true, &err) != STATUS_OK)
        sim_fail(sim, "store", "the store does not open: %s", err.text);
}

bool store_is_kept(const struct sim *sim)
{
    return sim->seed % EVERY == 0 && !sim->size.no_store;
}

void store_begin_run(struct sim *sim)
{
    assert(store == NULL); /* one run at a time */
    if (!store_is_kept(sim))
        return;
    disk_init(sim->seed, 0);
    open_store(sim);
}

void store_end_run(void)
{
    if (store == NULL)
        return;
    disk_bury(store);
    disk_free();
    arena_reset(&records);
    store = NULL;
}

void store_put(const struct rdzv_record *record)
{
    if (store == NULL)
        return;
    store_begin(store);
    store_write_job(store, record);
}

void store_put_drains(const struct rdzv_drain *drains, uint32_t count)
{
    if (store == NULL)
        return;
    store_begin(store);
    store_write_drains(store, drains, count);
}

void store_put_hold(const struct rdzv_hold *hold)
{
    if (store == NULL)
        return;
    store_begin(store);
    store_write_hold(store, hold);
}

void store_put_lease(uint64_t lease_us)
{
    if (store == NULL)
        return;
    store_begin(store);
    store_write_lease(store, lease_us);
}

/* The holds are there as committed. */
static void check_holds(struct sim *sim)
{
    struct rdzv_hold hold = {.node = ""};
    uint32_t count = 0, known = 0;

    for (uint32_t i = 0; i < sim->node_count; i++)
        known += sim->disk.synced_holds[i].slot_mask != 0;
    while (store_hold_after(store, hold.node, &hold)) {
        const struct rdzv_hold *put = &sim->disk.synced_holds[node_of_name(hold.node)];

        count++;
        if (hold.slot_mask != put->slot_mask ||
            memcmp(&hold.identity, &put->identity, sizeof hold.identity) != 0)
            sim_fail(sim, "store", "the hold of %s is not in the store as committed", hold.node);
    }
    if (count != known)
        sim_fail(sim, "store", "%u holds are in the store, %u were committed", count, known);
}

void store_commit_all(void)
{
    if (store != NULL)
        store_commit(store);
}

#define DIFFERS_U32(field) read->field != row->field
#define DIFFERS_I32(field) read->field != row->field
#define DIFFERS_U64(field) read->field != row->field
#define DIFFERS_I64(field) read->field != row->field
#define DIFFERS_BOOL(field) read->field != row->field
#define DIFFERS_STATE(field) read->field != row->field
#define DIFFERS_F64(field) (read->field < row->field || read->field > row->field)
#define DIFFERS_TEXT(field) strcmp(read->field, row->field) != 0
#define COMPARE(kind, field, column, audience, bytes)                                              \
    if (DIFFERS_##kind(field))                                                                     \
        return #column;

/* The first column that differs from the committed row; NULL: none. */
static const char *difference(const struct rdzv_record *read, const struct rdzv_record *row)
{
    RDZV_RECORD_TABLE(COMPARE)
    if (read->part_count != row->part_count)
        return "parts";
    for (uint32_t i = 0; i < row->part_count; i++)
        if (strcmp(read->parts[i].node, row->parts[i].node) != 0 ||
            read->parts[i].rank_base != row->parts[i].rank_base ||
            read->parts[i].local_count != row->parts[i].local_count ||
            read->parts[i].slot_mask != row->parts[i].slot_mask)
            return "parts";
    return NULL;
}

static void count_job(const struct rdzv_record *record, void *context)
{
    (void)record;
    ++*(uint32_t *)context;
}

void store_crash(struct sim *sim)
{
    struct sim_disk *disk = &sim->disk;
    uint32_t count = 0;

    if (store == NULL)
        return;
    disk_bury(store);
    store = NULL;
    if (sim->server.incarnation % 4 != 0)
        disk_power_on((enum disk_rest)(sim->server.incarnation % 3));
    open_store(sim);
    if (store == NULL)
        return;
    check_holds(sim);
    if (store_lease_us(store) != disk->synced_lease_us)
        sim_fail(sim, "store", "the longest lease is not in the store as committed");
    store_list(store, (struct store_viewer){.sees_all = true}, 0, UINT32_MAX, count_job, &count);
    if (count != disk->synced_count)
        sim_fail(sim, "store", "%u jobs are in the store, %u were committed", count,
                 disk->synced_count);
    for (uint32_t i = 0; i < disk->synced_count; i++) {
        const struct rdzv_record *row = &disk->synced[i].record;
        struct rdzv_record read;
        const char *column = "all";

        if (store_get_job(store, row->job_id, &records, &read))
            column = difference(&read, row);
        if (column != NULL)
            sim_fail(sim, "store", "job %llu is not in the store as committed: %s",
                     (unsigned long long)row->job_id, column);
        arena_reset(&records);
    }
}
