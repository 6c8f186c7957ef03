/* The disk of disk_vfs.h: files, names, faults. */
#include "tests/lib/disk_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/disk_names.h"

#define SECTOR 512u
#define BLOCK 4096u
#define FILES_MAX 24

static struct disk {
    struct disk_file files[FILES_MAX];
    struct disk_names names;
    uint64_t random, epoch, capacity_bytes, sync_us, busy_us;
    uint64_t counts[DISK_OPS], cut_at;
    struct {
        uint64_t first, end;
        int code;
    } failures[DISK_OPS];
    bool is_off;
    char bad_path[512]; /* syncs of this file fail with bad_code */
    int bad_code;
    int code; /* errno of the last failure */
} disk, saved;

uint64_t disk_draw(uint64_t limit)
{
    disk.random ^= disk.random << 13;
    disk.random ^= disk.random >> 7;
    disk.random ^= disk.random << 17;
    return (disk.random >> 11) % limit;
}

static void *make_zeroed(uint64_t byte_count)
{
    void *bytes = calloc(1, byte_count);

    if (bytes == NULL)
        abort();
    return bytes;
}

static bool is_used(int file)
{
    return disk.files[file].open_count > 0 || disk_names_may_have(&disk.names, file);
}

void disk_drop_regions(struct disk_file *file)
{
    for (uint32_t i = 0; i < DISK_REGIONS_MAX; i++) {
        free(file->regions[i]);
        file->regions[i] = NULL;
    }
}

static void drop_file(struct disk_file *file)
{
    disk_drop_regions(file);
    free(file->cache);
    free(file->stored);
    free(file->dirty);
    memset(file, 0, sizeof *file);
}

/* -- faults ------------------------------------------------------------------------------------ */

static int fail(int code)
{
    errno = disk.code = code;
    return -1;
}

uint64_t disk_count(enum disk_op op)
{
    return disk.counts[op];
}

uint64_t disk_changes(void)
{
    return disk.counts[DISK_WRITE] + disk.counts[DISK_SYNC] + disk.counts[DISK_NAME];
}

/* Counts an operation. 0: go on; -1 with errno. `*is_last`: the power is cut in the middle of this
 * operation. */
static int begin_op(enum disk_op op, bool *is_last)
{
    uint64_t number = ++disk.counts[op];

    *is_last = false;
    if (disk.is_off)
        return fail(EIO);
    if (op != DISK_READ && disk.cut_at != 0 && disk_changes() >= disk.cut_at)
        *is_last = disk.is_off = true;
    if (number >= disk.failures[op].first && number < disk.failures[op].end)
        return fail(disk.failures[op].code);
    return 0;
}

int disk_find(const char *path)
{
    return disk_names_find(&disk.names, path);
}

/* The power may be cut during the change: then the caller gets an error, and the change may be done
 * or not. */
static int try_names(const char *gone, const char *made, int file)
{
    bool is_last;

    if (begin_op(DISK_NAME, &is_last) < 0)
        return -1;
    disk_names_change(&disk.names, gone, made, file);
    return is_last ? fail(EIO) : 0;
}

int disk_add(const char *path)
{
    for (int i = 0; i < FILES_MAX; i++)
        if (!is_used(i)) {
            drop_file(&disk.files[i]);
            return try_names("", path, i) == 0 ? i : -1;
        }
    abort();
}

int disk_rename(const char *from, const char *to)
{
    int file = disk_find(from);

    return file < 0 ? fail(ENOENT) : try_names(from, to, file);
}

int disk_remove(const char *path)
{
    return disk_find(path) < 0 ? fail(ENOENT) : try_names(path, "", 0);
}

struct disk_file *disk_file(int file)
{
    return &disk.files[file];
}

uint64_t disk_epoch(void)
{
    return disk.epoch;
}

int disk_errno(void)
{
    return disk.code;
}

void disk_cut_at(uint64_t change)
{
    disk.cut_at = change;
}

bool disk_is_off(void)
{
    return disk.is_off;
}

void disk_fail_at(enum disk_op op, uint64_t number, uint64_t count, int code)
{
    disk.failures[op].first = number;
    disk.failures[op].end = number + count;
    disk.failures[op].code = code;
}

void disk_fail_syncs_of(const char *path, int code)
{
    (void)snprintf(disk.bad_path, sizeof disk.bad_path, "%s", path != NULL ? path : "");
    disk.bad_code = code;
}

void disk_set_capacity(uint64_t capacity_bytes)
{
    disk.capacity_bytes = capacity_bytes;
}

void disk_set_sync_time(uint64_t sync_us)
{
    disk.sync_us = sync_us;
}

uint64_t disk_busy_us(void)
{
    return disk.busy_us;
}

/* -- bytes ------------------------------------------------------------------------------------- */

uint64_t disk_allocated(const struct disk_file *file)
{
    uint64_t byte_count =
        file->cache_bytes > file->reserved_bytes ? file->cache_bytes : file->reserved_bytes;

    return (byte_count + BLOCK - 1) / BLOCK * BLOCK;
}

uint64_t disk_used(void)
{
    uint64_t sum = 0;

    for (int i = 0; i < FILES_MAX; i++)
        if (disk.files[i].open_count > 0 || disk_names_have(&disk.names, i))
            sum += disk_allocated(&disk.files[i]);
    return sum;
}

uint64_t disk_free_bytes(void)
{
    uint64_t used = disk_used();

    if (disk.capacity_bytes == 0)
        return UINT64_MAX;
    return used < disk.capacity_bytes ? disk.capacity_bytes - used : 0;
}

/* Memory for `byte_count` bytes. */
static void widen(struct disk_file *file, uint64_t byte_count)
{
    uint64_t room = file->room_bytes;
    uint8_t *old_cache = file->cache, *old_stored = file->stored, *old_dirty = file->dirty;

    if (byte_count <= room)
        return;
    file->room_bytes = (byte_count * 3 / 2 + BLOCK) / BLOCK * BLOCK;
    file->cache = make_zeroed(file->room_bytes);
    file->stored = make_zeroed(file->room_bytes);
    file->dirty = make_zeroed(file->room_bytes / SECTOR);
    if (room > 0) {
        memcpy(file->cache, old_cache, room);
        memcpy(file->stored, old_stored, room);
        memcpy(file->dirty, old_dirty, room / SECTOR);
    }
    free(old_cache);
    free(old_stored);
    free(old_dirty);
}

static void mark(struct disk_file *file, uint64_t from, uint64_t end)
{
    if (end > from)
        memset(file->dirty + from / SECTOR, 1, (end - 1) / SECTOR - from / SECTOR + 1);
}

static void set_size(struct disk_file *file, uint64_t byte_count)
{
    widen(file, byte_count);
    if (byte_count < file->cache_bytes) {
        memset(file->cache + byte_count, 0, file->cache_bytes - byte_count);
        mark(file, byte_count, file->cache_bytes);
        file->reserved_bytes = 0;
    } else {
        mark(file, file->cache_bytes, byte_count);
    }
    file->cache_bytes = byte_count;
}

static void store_sector(struct disk_file *file, uint64_t sector)
{
    memcpy(file->stored + sector * SECTOR, file->cache + sector * SECTOR, SECTOR);
    file->dirty[sector] = 0;
}

/* The kernel may write back any dirty sector at any time. */
static void write_back(struct disk_file *file, uint64_t from, uint64_t end)
{
    for (uint64_t i = from / SECTOR; i * SECTOR < end; i++)
        if (disk_draw(16) == 0)
            store_sector(file, i);
}

int disk_write(struct disk_file *file, const void *bytes, uint64_t byte_count, uint64_t at)
{
    bool is_last;
    uint64_t room, held = disk_allocated(file), end = at + byte_count;
    int rc = begin_op(DISK_WRITE, &is_last);

    if (rc < 0)
        return rc;
    room = disk_free_bytes();
    if (room != UINT64_MAX && end > held + room) { /* write as much as fits */
        rc = fail(ENOSPC);
        end = held + room;
    }
    if (is_last)
        end = at + disk_draw(byte_count + 1);
    if (end > at) {
        if (end > file->cache_bytes)
            set_size(file, end);
        memcpy(file->cache + at, bytes, end - at);
        mark(file, at, end);
        write_back(file, at, end);
    }
    return is_last ? fail(EIO) : rc;
}

int disk_read(const struct disk_file *file, void *bytes, uint64_t byte_count, uint64_t at,
              uint64_t *found)
{
    bool is_last;

    *found = 0;
    if (begin_op(DISK_READ, &is_last) < 0)
        return -1;
    if (at < file->cache_bytes)
        *found = file->cache_bytes - at < byte_count ? file->cache_bytes - at : byte_count;
    if (*found > 0)
        memcpy(bytes, file->cache + at, *found);
    return 0;
}

int disk_truncate(struct disk_file *file, uint64_t byte_count)
{
    bool is_last;

    if (begin_op(DISK_WRITE, &is_last) < 0)
        return -1;
    set_size(file, byte_count);
    return is_last ? fail(EIO) : 0;
}

int disk_reserve(struct disk_file *file, uint64_t byte_count)
{
    uint64_t held = disk_allocated(file);

    if (disk.is_off)
        return fail(EIO);
    if (byte_count > held && byte_count - held > disk_free_bytes())
        return fail(ENOSPC);
    if (byte_count > file->reserved_bytes)
        file->reserved_bytes = byte_count;
    return 0;
}

int disk_sync_names(void)
{
    bool is_last;

    if (begin_op(DISK_SYNC, &is_last) < 0)
        return -1;
    disk_names_store(&disk.names, is_last ? (uint32_t)disk_draw(disk.names.change_count + 1)
                                          : disk.names.change_count);
    return is_last ? fail(EIO) : 0;
}

int disk_sync(struct disk_file *file, bool with_names)
{
    bool is_last;
    int rc = begin_op(DISK_SYNC, &is_last);
    uint64_t sectors = file->room_bytes / SECTOR;

    disk.busy_us += disk.sync_us;
    if (rc == 0 && disk.bad_path[0] != '\0' && disk_find(disk.bad_path) == file - disk.files)
        rc = fail(disk.bad_code);
    if (rc < 0 && disk.is_off)
        return rc;
    for (uint64_t i = 0; i < sectors; i++) {
        if (file->dirty[i] == 0)
            continue;
        if ((rc == 0 && !is_last) || disk_draw(2) == 0)
            store_sector(file, i);
        else if (!is_last)
            file->dirty[i] = 0; /* after a failure the kernel considers it clean: it is lost */
    }
    if (is_last)
        return fail(EIO);
    if (rc == 0) {
        file->stored_bytes = file->cache_bytes;
        if (with_names)
            disk_names_store(&disk.names, disk.names.change_count);
    }
    return rc;
}

/* -- the end of a process, and of the power ------------------------------------------------------ */

static uint64_t surviving_bytes(const struct disk_file *file, uint64_t written_end,
                                enum disk_rest rest)
{
    if (rest == DISK_REST_NONE)
        return file->stored_bytes;
    if (rest == DISK_REST_ALL || disk_draw(2) == 0)
        return file->cache_bytes;
    if (file->cache_bytes < file->stored_bytes) /* truncated in the cache, but not on the disk */
        return file->stored_bytes;
    return written_end > file->stored_bytes ? written_end : file->stored_bytes;
}

static void lose_power(struct disk_file *file, enum disk_rest rest)
{
    uint64_t sectors = file->room_bytes / SECTOR, written_end = 0, size;

    for (uint64_t i = 0; i < sectors; i++) {
        if (file->dirty[i] == 0)
            continue;
        if (rest == DISK_REST_ALL || (rest == DISK_REST_SOME && disk_draw(2) == 0)) {
            store_sector(file, i);
            written_end = (i + 1) * SECTOR;
        }
        file->dirty[i] = 0;
    }
    if (written_end > file->cache_bytes)
        written_end = file->cache_bytes;
    size = surviving_bytes(file, written_end, rest);
    if (file->room_bytes > size)
        memset(file->stored + size, 0, file->room_bytes - size);
    if (file->room_bytes > 0)
        memcpy(file->cache, file->stored, file->room_bytes);
    file->cache_bytes = file->stored_bytes = size;
    file->reserved_bytes = 0;
}

/* Some sectors that a failed sync left clean leave the page cache: reads then return the disk's
 * older content. */
static void evict(struct disk_file *file)
{
    uint64_t end = file->cache_bytes < file->stored_bytes ? file->cache_bytes : file->stored_bytes;

    for (uint64_t i = 0; (i + 1) * SECTOR <= end; i++)
        if (file->dirty[i] == 0 &&
            memcmp(file->cache + i * SECTOR, file->stored + i * SECTOR, SECTOR) != 0 &&
            disk_draw(4) == 0)
            memcpy(file->cache + i * SECTOR, file->stored + i * SECTOR, SECTOR);
}

void disk_process_killed(void)
{
    disk.epoch++;
    for (int i = 0; i < FILES_MAX; i++) {
        disk_drop_regions(&disk.files[i]);
        disk.files[i].open_count = 0;
        evict(&disk.files[i]);
    }
}

void disk_power_on(enum disk_rest rest)
{
    disk_process_killed();
    if (rest == DISK_REST_ALL)
        disk_names_store(&disk.names, disk.names.change_count);
    else if (rest == DISK_REST_SOME)
        disk_names_store(&disk.names, (uint32_t)disk_draw(disk.names.change_count + 1));
    disk_names_lose(&disk.names);
    for (int i = 0; i < FILES_MAX; i++)
        lose_power(&disk.files[i], rest);
    disk.is_off = false;
    disk.cut_at = 0;
    memset(disk.failures, 0, sizeof disk.failures);
}

/* -- the whole disk ---------------------------------------------------------------------------- */

static void drop_all(struct disk *which)
{
    for (int i = 0; i < FILES_MAX; i++)
        drop_file(&which->files[i]);
}

/* Reuses the memory of `to` if its size fits, since a test copies for each of thousands of
 * faults. */
static void copy_file(struct disk_file *to, const struct disk_file *from)
{
    struct disk_file copy = *from;
    uint64_t room = from->room_bytes;

    memset(copy.regions, 0, sizeof copy.regions);
    if (to->room_bytes != room) {
        drop_file(to);
        to->cache = room > 0 ? make_zeroed(room) : NULL;
        to->stored = room > 0 ? make_zeroed(room) : NULL;
        to->dirty = room > 0 ? make_zeroed(room / SECTOR) : NULL;
    }
    disk_drop_regions(to);
    copy.cache = to->cache;
    copy.stored = to->stored;
    copy.dirty = to->dirty;
    *to = copy;
    if (room == 0)
        return;
    memcpy(to->cache, from->cache, room);
    memcpy(to->stored, from->stored, room);
    memcpy(to->dirty, from->dirty, room / SECTOR);
}

static void copy_disk(struct disk *to, const struct disk *from)
{
    static struct disk copy;

    copy = *from;
    memcpy(copy.files, to->files, sizeof copy.files);
    *to = copy;
    for (int i = 0; i < FILES_MAX; i++)
        copy_file(&to->files[i], &from->files[i]);
}

static void set_seed(uint64_t seed)
{
    disk.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int i = 0; i < 4; i++)
        (void)disk_draw(1);
}

void disk_init(uint64_t seed, uint64_t capacity_bytes)
{
    uint64_t epoch = disk.epoch;

    drop_all(&disk);
    memset(&disk, 0, sizeof disk);
    disk.epoch = epoch + 1;
    disk.capacity_bytes = capacity_bytes;
    set_seed(seed);
}

void disk_save(void)
{
    copy_disk(&saved, &disk);
}

void disk_restore(uint64_t seed)
{
    uint64_t epoch = disk.epoch;

    copy_disk(&disk, &saved);
    disk.epoch = epoch + 1;
    set_seed(seed);
}

void disk_free(void)
{
    drop_all(&disk);
    drop_all(&saved);
}
