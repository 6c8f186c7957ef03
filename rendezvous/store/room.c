/* Reserves room on the disk of the state directory, so that what running jobs need can be written even when
 * the disk is completely full:
 *   - state.db has free pages inside: a large row was written and deleted again. Blocks beyond its end would
 *     not help, since SQLite truncates the file to its pages after it has copied the log into it. In a new file
 *     this happens in its first transaction, which writes no free pages, only the size: so blocks for them are
 *     allocated afterwards, as for the log;
 *   - its log has blocks, also beyond its end. The log is removed when the server ends, so that no old secrets
 *     stay in it, except while the disk is nearly full.
 * The server of a private run reserves less: it has one job, whose own logs may fill the disk. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/remote.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define PAGE_BYTES 4096u
#define RESERVE_EVERY 64 /* transactions */

/* How much is reserved, and with how much less on the disk the server is careful. */
struct room {
    uint64_t log_bytes; /* SQLite copies the log into the file after STORE_LOG_PAGES, if it can */
    uint64_t file_bytes, low_bytes;
    int64_t free_pages_min; /* of 4 KiB */
};

static const struct room rooms[] = {
    {.log_bytes = 512 * KIB, .file_bytes = 256 * KIB, .low_bytes = 256 * KIB, .free_pages_min = 48},
    {.log_bytes = 12 * MIB, .file_bytes = 4 * MIB, .low_bytes = 8 * MIB, .free_pages_min = 768},
};

static const struct room *room_of(const struct store *store)
{
    return &rooms[store->survives_power];
}

static void log_path(const struct store *store, char path[sizeof store->path + 8])
{
    (void)snprintf(path, sizeof store->path + 8, "%s-wal", store->path);
}

/* How much of the reserve has no blocks yet. */
static uint64_t missing_bytes(struct store *store)
{
    const struct room *room = room_of(store);
    char path[sizeof store->path + 8];
    uint64_t has, bytes = 0;
    int64_t pages = 0;
    struct err err;

    log_path(store, path);
    has = store->disk->allocated_bytes(path);
    if (has < room->log_bytes)
        bytes += room->log_bytes - has;
    if (store_number(store, "PRAGMA freelist_count", &pages, &err) != STATUS_OK || pages < 0)
        pages = 0;
    if (store->may_have_holes)
        bytes += room->file_bytes;
    else if (pages < room->free_pages_min) /* the reserve's row goes into these pages first */
        bytes += room->file_bytes - (uint64_t)pages * PAGE_BYTES;
    return bytes;
}

/* With how much on the disk a server that is careful is not so any more: with a little more than it needs, so that it does
 * not say so again and again. */
static uint64_t enough_bytes(struct store *store)
{
    const struct room *room = room_of(store);

    return room->low_bytes + room->low_bytes / 8 + missing_bytes(store);
}

/* Allocates blocks for all pages of the file. The descriptor stays open as long as SQLite's:
 * closing another descriptor of the same file would drop the locks that this process holds on
 * it. */
static bool allocate_file(struct store *store)
{
    int64_t byte_count = store->disk->byte_count(store->path);

    return byte_count >= 0 &&
           store->disk->allocate(store->path, &store->room_fd, (uint64_t)byte_count) == 0;
}

/* SQLite's locks are on state.db and state.db-shm, not on the log. */
static bool allocate_log(const struct store *store)
{
    char path[sizeof store->path + 8];

    log_path(store, path);
    return store->disk->allocate(path, NULL, room_of(store)->log_bytes) == 0;
}

static bool make_free_pages(struct store *store)
{
    char sql[160];
    struct err err;

    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO reserve VALUES (zeroblob(%llu)); DELETE FROM reserve;"
                   " PRAGMA wal_checkpoint",
                   (unsigned long long)room_of(store)->file_bytes);
    if (store_execute(store, sql, &err) == STATUS_OK)
        return allocate_file(store);
    if (!store_is_passing(store, sqlite3_extended_errcode(store->db)))
        store_fail(store, "reserve room in");
    errno = ENOSPC;
    return false;
}

enum status store_room_fill(struct store *store, struct err *err)
{
    char sql[128];

    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO reserve VALUES (zeroblob(%llu)); DELETE FROM reserve",
                   (unsigned long long)room_of(store)->file_bytes);
    return store_execute(store, sql, err);
}

/* Where the file system cannot allocate blocks, those of a new file are written. */
static bool fill_holes(struct store *store)
{
    if (store->may_have_holes && !allocate_file(store) &&
        (!store->is_new || !make_free_pages(store)))
        return false;
    store->may_have_holes = false;
    return true;
}

static void reserve(struct store *store)
{
    int64_t pages = 0;
    struct err err;

    if (store_number(store, "PRAGMA freelist_count", &pages, &err) == STATUS_OK &&
        (pages >= room_of(store)->free_pages_min ? fill_holes(store) : make_free_pages(store)) &&
        allocate_log(store))
        return;
    if (!store->cannot_reserve)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "no room is reserved for a full disk: cannot allocate blocks for %s: %s",
                 store->path, strerror(errno));
    store->cannot_reserve = true;
}

void store_room_open(struct store *store)
{
    store->watches_room = true;
    if (!store_is_low(store))
        reserve(store);
}

void store_room_close(struct store *store)
{
    int stays;

    if (store->remote != NULL)
        return;
    stays = store_is_low(store);
    (void)sqlite3_file_control(store->db, "main", SQLITE_FCNTL_PERSIST_WAL, &stays);
}

void store_room_used(struct store *store)
{
    if (store->remote != NULL)
        (void)store_is_low(store);
    if (store->watches_room && !store_is_low(store) && ++store->transactions % RESERVE_EVERY == 0)
        reserve(store);
}

uint64_t store_free_bytes(struct store *store)
{
    const struct room *room = room_of(store);
    uint64_t bytes;

    if (store->remote != NULL)
        return remote_free_bytes(store->remote);
    if (!store->watches_room || !store->survives_power) /* a private run has one user */
        return UINT64_MAX;
    bytes = store->disk->free_bytes(store->path);
    return bytes > room->low_bytes ? bytes - room->low_bytes : 0;
}

bool store_is_low(struct store *store)
{
    const struct room *room = room_of(store);
    uint64_t bytes;

    if (store->remote != NULL)
        return store->is_low = remote_is_low(store->remote);
    bytes = store->watches_room ? store->disk->free_bytes(store->path) : UINT64_MAX;

    if (!store->is_low && bytes < room->low_bytes) {
        store->is_low = true;
        log_line(LOG_ERROR, LOG_ABOUT_NONE,
                 "the disk of %s is nearly full (%llu MiB free): new jobs and keys are refused and "
                 "events are not stored until %llu MiB are free; running jobs go on",
                 store->path, (unsigned long long)(bytes / MIB),
                 (unsigned long long)((enough_bytes(store) + MIB - 1) / MIB));
    } else if (store->is_low && bytes >= room->low_bytes && bytes >= enough_bytes(store)) {
        store->is_low = false;
        reserve(store);
        log_line(LOG_INFO, LOG_ABOUT_NONE, "the disk of %s has room again", store->path);
    }
    return store->is_low;
}
