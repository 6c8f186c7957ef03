/* What the store asks of a file system: the files of SQLite by a VFS, and what is done beside SQLite.
 * One table, so that a test can put a disk with faults in its place (tests/lib/disk_vfs.h). */
#ifndef RENDEZVOUS_STORE_DISK_H
#define RENDEZVOUS_STORE_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

struct store;

/* Where an int is returned: 0, or -1 with errno. */
struct store_disk {
    const char *vfs; /* of SQLite; NULL: its own */
    /* Makes the folder with its parents and takes its lock; -1 in `lock_fd`: nothing to close.
     * STATUS_BUSY: another process has it. */
    enum status (*hold)(const char *dir, int *lock_fd, struct err *err);
    int64_t (*byte_count)(const char *path); /* -1: there is no such file */
    int (*make)(const char *path);           /* an empty file, 0600, which must not be there yet */
    int (*make_private)(const char *path);   /* 0600 */
    int (*rename)(const char *from, const char *to);
    int (*remove)(const char *path);
    int (*sync)(const char *path); /* a file or a folder */
    /* Writes to a file what is read from it, and syncs it. See store_open in store.c. */
    int (*rewrite)(const char *path);
    /* Blocks for its first `byte_count` bytes; its size stays. Where `kept_fd` is given its descriptor
     * stays open in there, -1: none yet. */
    int (*allocate)(const char *path, int *kept_fd, uint64_t byte_count);
    uint64_t (*free_bytes)(const char *path); /* on its disk; UINT64_MAX: not known */
    /* The store cannot go on: ends the process, or never returns in another way. */
    void (*end)(struct store *store, int code);
};

/* The machine's. */
extern const struct store_disk store_disk_usual;

/* store_open on another disk. */
enum status store_open_on(struct store **store, const struct store_disk *disk, const char *dir,
                          bool survives_power, struct err *err);

#endif
