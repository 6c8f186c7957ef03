/* The disk of disk_vfs.h for SQLite and for the store. */
#include "tests/lib/disk_vfs.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/internal.h"
#include "tests/lib/disk_memory.h"

#define VFS_NAME "disk"

struct handle {
    sqlite3_file base;
    int file;
    uint64_t epoch;
    bool syncs_folder, keeps_log;
};

/* NULL: the handle belongs to a process that is gone. */
static struct disk_file *file_of(sqlite3_file *base)
{
    const struct handle *handle = (const void *)base;

    return handle->epoch == disk_epoch() ? disk_file(handle->file) : NULL;
}

static int on_close(sqlite3_file *base)
{
    struct disk_file *file = file_of(base);

    if (file != NULL)
        file->open_count--;
    return SQLITE_OK;
}

static int on_read(sqlite3_file *base, void *bytes, int byte_count, sqlite3_int64 at)
{
    const struct disk_file *file = file_of(base);
    uint64_t wanted = (uint64_t)byte_count, found;

    if (file == NULL || disk_read(file, bytes, wanted, (uint64_t)at, &found) < 0)
        return SQLITE_IOERR_READ;
    memset((uint8_t *)bytes + found, 0, wanted - found);
    return found < wanted ? SQLITE_IOERR_SHORT_READ : SQLITE_OK;
}

static int on_write(sqlite3_file *base, const void *bytes, int byte_count, sqlite3_int64 at)
{
    struct disk_file *file = file_of(base);

    if (file == NULL)
        return SQLITE_IOERR_WRITE;
    if (disk_write(file, bytes, (uint64_t)byte_count, (uint64_t)at) == 0)
        return SQLITE_OK;
    return errno == ENOSPC ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

static int on_truncate(sqlite3_file *base, sqlite3_int64 byte_count)
{
    struct disk_file *file = file_of(base);

    if (file == NULL || disk_truncate(file, (uint64_t)byte_count) < 0)
        return SQLITE_IOERR_TRUNCATE;
    return SQLITE_OK;
}

static int on_sync(sqlite3_file *base, int flags)
{
    struct handle *handle = (void *)base;
    struct disk_file *file = file_of(base);

    (void)flags;
    if (file == NULL || disk_sync(file, handle->syncs_folder) < 0)
        return SQLITE_IOERR_FSYNC;
    handle->syncs_folder = false;
    return SQLITE_OK;
}

static int on_file_size(sqlite3_file *base, sqlite3_int64 *byte_count)
{
    const struct disk_file *file = file_of(base);

    *byte_count = file != NULL ? (sqlite3_int64)file->cache_bytes : 0;
    return file != NULL ? SQLITE_OK : SQLITE_IOERR_FSTAT;
}

static int on_lock(sqlite3_file *base, int level)
{
    (void)level;
    return file_of(base) != NULL ? SQLITE_OK : SQLITE_IOERR_LOCK;
}

static int on_check_lock(sqlite3_file *base, int *is_locked)
{
    (void)base;
    *is_locked = 0;
    return SQLITE_OK;
}

/* Keeps the log file when the database is closed, if the store asks for that. */
static int on_control(sqlite3_file *base, int op, void *value)
{
    struct handle *handle = (void *)base;
    int *keeps = value;

    if (op != SQLITE_FCNTL_PERSIST_WAL)
        return SQLITE_NOTFOUND;
    if (*keeps >= 0)
        handle->keeps_log = *keeps != 0;
    *keeps = handle->keeps_log;
    return SQLITE_OK;
}

static int on_sector_size(sqlite3_file *base)
{
    (void)base;
    return 4096;
}

static int on_traits(sqlite3_file *base)
{
    (void)base;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

static int on_shm_map(sqlite3_file *base, int region, int byte_count, int extend,
                      void volatile **memory)
{
    struct disk_file *file = file_of(base);

    *memory = NULL;
    if (file == NULL || region >= DISK_REGIONS_MAX)
        return SQLITE_IOERR_SHMMAP;
    if (file->regions[region] == NULL && extend != 0)
        file->regions[region] = calloc(1, (size_t)byte_count);
    *memory = file->regions[region];
    return SQLITE_OK;
}

static int on_shm_lock(sqlite3_file *base, int offset, int count, int flags)
{
    (void)offset;
    (void)count;
    (void)flags;
    return file_of(base) != NULL ? SQLITE_OK : SQLITE_IOERR_SHMLOCK;
}

static void on_shm_barrier(sqlite3_file *base)
{
    (void)base;
}

static int on_shm_unmap(sqlite3_file *base, int is_removed)
{
    struct disk_file *file = file_of(base);

    if (file != NULL && is_removed != 0)
        disk_drop_regions(file);
    return SQLITE_OK;
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = on_close,
    .xRead = on_read,
    .xWrite = on_write,
    .xTruncate = on_truncate,
    .xSync = on_sync,
    .xFileSize = on_file_size,
    .xLock = on_lock,
    .xUnlock = on_lock,
    .xCheckReservedLock = on_check_lock,
    .xFileControl = on_control,
    .xSectorSize = on_sector_size,
    .xDeviceCharacteristics = on_traits,
    .xShmMap = on_shm_map,
    .xShmLock = on_shm_lock,
    .xShmBarrier = on_shm_barrier,
    .xShmUnmap = on_shm_unmap,
};

static int on_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *base, int flags,
                   int *flags_out)
{
    struct handle *handle = (void *)base;
    int file = path != NULL ? disk_find(path) : -1;
    bool is_made = file < 0 && path != NULL && (flags & SQLITE_OPEN_CREATE) != 0;

    (void)vfs;
    base->pMethods = NULL;
    if (is_made)
        file = disk_add(path);
    if (disk_is_off() || file < 0)
        return SQLITE_CANTOPEN;
    *handle = (struct handle){.base = {.pMethods = &methods}, .file = file, .epoch = disk_epoch()};
    /* like SQLite's own VFS: any handle that may have created the file syncs the folder at its
     * first sync */
    handle->syncs_folder = (flags & SQLITE_OPEN_CREATE) != 0 &&
                           (flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL)) != 0;
    disk_file(file)->open_count++;
    if (flags_out != NULL)
        *flags_out = flags;
    return SQLITE_OK;
}

static int on_delete(sqlite3_vfs *vfs, const char *path, int with_sync)
{
    (void)vfs;
    if (disk_remove(path) < 0)
        return errno == ENOENT ? SQLITE_IOERR_DELETE_NOENT : SQLITE_IOERR_DELETE;
    return with_sync != 0 && disk_sync_names() < 0 ? SQLITE_IOERR_DIR_FSYNC : SQLITE_OK;
}

static int on_access(sqlite3_vfs *vfs, const char *path, int flags, int *result)
{
    int file = disk_find(path);

    (void)vfs;
    if (disk_is_off())
        return SQLITE_IOERR_ACCESS;
    *result = file >= 0 && (flags != SQLITE_ACCESS_EXISTS || disk_file(file)->cache_bytes > 0);
    return SQLITE_OK;
}

static int on_full_path(sqlite3_vfs *vfs, const char *path, int byte_count, char *out)
{
    (void)vfs;
    (void)snprintf(out, (size_t)byte_count, "%s", path);
    return SQLITE_OK;
}

static int on_randomness(sqlite3_vfs *vfs, int byte_count, char *bytes)
{
    (void)vfs;
    for (int i = 0; i < byte_count; i++)
        bytes[i] = (char)disk_draw(256);
    return byte_count;
}

static int on_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    return us;
}

static int on_time(sqlite3_vfs *vfs, sqlite3_int64 *ms)
{
    (void)vfs;
    *ms = INT64_C(212045000000000);
    return SQLITE_OK;
}

static int on_day(sqlite3_vfs *vfs, double *days)
{
    sqlite3_int64 ms = 0;
    int rc = on_time(vfs, &ms);

    *days = (double)ms / 86400000.0;
    return rc;
}

static int on_last_error(sqlite3_vfs *vfs, int byte_count, char *text)
{
    (void)vfs;
    if (byte_count > 0)
        text[0] = '\0';
    return disk_errno();
}

static sqlite3_vfs vfs = {
    .iVersion = 2,
    .szOsFile = sizeof(struct handle),
    .mxPathname = 500,
    .zName = VFS_NAME,
    .xOpen = on_open,
    .xDelete = on_delete,
    .xAccess = on_access,
    .xFullPathname = on_full_path,
    .xRandomness = on_randomness,
    .xSleep = on_sleep,
    .xCurrentTime = on_day,
    .xGetLastError = on_last_error,
    .xCurrentTimeInt64 = on_time,
};

/* -- the store's table ------------------------------------------------------------------------- */

static enum status hold(const char *dir, struct folder_lock *lock, struct err *err)
{
    (void)dir;
    *lock = FOLDER_LOCK_NONE;
    return disk_is_off() ? err_set(err, STATUS_IO, EIO, "no power") : STATUS_OK;
}

static enum status look(const char *path, struct err *err)
{
    return disk_find(path) >= 0
               ? STATUS_OK
               : err_set(err, STATUS_NOT_FOUND, ENOENT, "%.180s is not there", path);
}

static int64_t byte_count_of(const char *path)
{
    int file = disk_find(path);

    return file >= 0 ? (int64_t)disk_file(file)->cache_bytes : -1;
}

static int make(const char *path)
{
    if (disk_find(path) >= 0) {
        errno = EEXIST;
        return -1;
    }
    return disk_add(path) < 0 ? -1 : 0;
}

static int make_private(const char *path)
{
    (void)path;
    return 0;
}

/* A path that is not a file is the folder. */
static int sync_path(const char *path)
{
    int file = disk_find(path);

    return file >= 0 ? disk_sync(disk_file(file), false) : disk_sync_names();
}

static int rewrite(const char *path)
{
    struct disk_file *file = disk_file(disk_find(path));
    uint8_t bytes[65536];
    uint64_t at = 0, found;

    do {
        if (disk_read(file, bytes, sizeof bytes, at, &found) < 0 ||
            (found > 0 && disk_write(file, bytes, found, at) < 0))
            return -1;
        at += found;
    } while (found > 0);
    return disk_sync(file, false);
}

static int allocate(const char *path, int *kept_fd, uint64_t byte_count)
{
    int file = disk_find(path);

    (void)kept_fd;
    if (file < 0) {
        errno = ENOENT;
        return -1;
    }
    return disk_reserve(disk_file(file), byte_count);
}

static uint64_t allocated_bytes(const char *path)
{
    int file = disk_find(path);

    return file >= 0 ? disk_allocated(disk_file(file)) : 0;
}

static uint64_t free_bytes(const char *path)
{
    (void)path;
    return disk_free_bytes();
}

/* A store that fails calls `end`, which would end its process; here its memory stays, and is no
 * leak. */
__attribute__((weak)) void __lsan_disable(void);

const struct store_disk *disk_table(void (*on_end)(struct store *store, int code))
{
    static struct store_disk table = {
        .vfs = VFS_NAME,
        .hold = hold,
        .look = look,
        .byte_count = byte_count_of,
        .make = make,
        .make_private = make_private,
        .rename = disk_rename,
        .remove = disk_remove,
        .sync = sync_path,
        .rewrite = rewrite,
        .allocate = allocate,
        .allocated_bytes = allocated_bytes,
        .free_bytes = free_bytes,
    };

    if (table.end == NULL && __lsan_disable != NULL)
        __lsan_disable();
    table.end = on_end;
    (void)sqlite3_vfs_register(&vfs, 0);
    return &table;
}

void disk_bury(struct store *store)
{
    disk_process_killed(); /* before the close, so that closing writes nothing */
    for (size_t i = 0; i < STORE_STATEMENT_COUNT; i++)
        (void)sqlite3_finalize(store->statements[i]);
    (void)sqlite3_close(store->db);
    free(store);
}
