/* Room on the disk of the state directory. Blocks for RESERVED_BYTES of SQLite's log are allocated at
 * the start, so what running jobs need can still be written on a disk that is full to the last byte. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/log.h"
#include "rendezvous/store/internal.h"

#define MIB ((uint64_t)1 << 20)
#define RESERVED_BYTES (12 * MIB) /* SQLite copies the log into the file after 4 MiB, if it can */
#define LOW_BYTES (8 * MIB)
#define ENOUGH_BYTES (16 * MIB)

/* The size stays as it is: SQLite takes the file's end from it. */
void store_room_open(struct store *store)
{
    char path[sizeof store->path + 8];
    int fd, rc;

    if (!store->survives_power)
        return; /* a private run, whose state nobody needs after it */
    store->watches_room = true;
    if (store_is_low(store))
        return;
    (void)snprintf(path, sizeof path, "%s-wal", store->path);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    rc = fd < 0 ? -1 : fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)RESERVED_BYTES);
    if (rc != 0)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "no room is reserved for a full disk: cannot allocate blocks of %s: %s", path,
                 strerror(errno));
    if (fd >= 0)
        (void)close(fd);
}

/* UINT64_MAX: not known. */
static uint64_t free_bytes(const struct store *store)
{
    struct statvfs info;

    if (statvfs(store->path, &info) != 0)
        return UINT64_MAX;
    return (uint64_t)info.f_bavail * info.f_frsize;
}

bool store_is_low(struct store *store)
{
    uint64_t bytes = store->watches_room ? free_bytes(store) : UINT64_MAX;

    if (!store->is_low && bytes < LOW_BYTES) {
        store->is_low = true;
        log_line(LOG_ERROR, LOG_ABOUT_NONE,
                 "the disk of %s is nearly full (%llu MiB free): new jobs and keys are refused and "
                 "events are not stored until %llu MiB are free; running jobs go on",
                 store->path, (unsigned long long)(bytes / MIB),
                 (unsigned long long)(ENOUGH_BYTES / MIB));
    } else if (store->is_low && bytes >= ENOUGH_BYTES) {
        store->is_low = false;
        log_line(LOG_INFO, LOG_ABOUT_NONE, "the disk of %s has room again", store->path);
    }
    return store->is_low;
}
