/* What the store needs from a file system. SQLite's files go through a VFS; the other functions are
 * what the store does beside SQLite. One table, so that a test can substitute a disk with faults
 * (tests/lib/disk_vfs.h). */
#ifndef RENDEZVOUS_STORE_DISK_H
#define RENDEZVOUS_STORE_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/io/folder_lock.h"
#include "common/status.h"

struct store;
struct seen;
struct witness;

/* Functions that return int return 0, or -1 with errno. */
struct store_disk {
    const char *vfs; /* the name of SQLite's VFS; NULL: its default */
    /* Makes the folder with its parents and locks it. STATUS_BUSY: another process has the lock. */
    enum status (*hold)(const char *dir, struct folder_lock *lock, struct err *err);
    /* STATUS_NOT_FOUND: nothing is there. STATUS_REFUSED: it is no plain file of ours. STATUS_IO: it
     * cannot be opened, which does not mean that it is gone. */
    enum status (*look)(const char *path, struct err *err);
    int64_t (*byte_count)(const char *path); /* -1: there is no such file */
    int (*make)(const char *path);           /* an empty file, 0600; an existing one is an error */
    int (*make_private)(const char *path);   /* sets the mode to 0600 */
    int (*rename)(const char *from, const char *to);
    int (*remove)(const char *path);
    int (*sync)(const char *path); /* a file or a folder */
    /* Reads the file, writes the same bytes over it, and syncs it. store_open in store.c says
     * why. */
    int (*rewrite)(const char *path);
    /* Reads `byte_count` bytes at that place. Returns how many; -1 with errno. NULL: whether the log belongs to its file is not
     * looked at (log_base.c). */
    int64_t (*read_at)(const char *path, void *bytes, size_t byte_count, int64_t at);
    /* Allocates disk blocks for the file's first `byte_count` bytes, without changing its size. If
     * `kept_fd` is given, the descriptor is kept open in it; -1: none is open yet. */
    int (*allocate)(const char *path, int *kept_fd, uint64_t byte_count);
    uint64_t (*allocated_bytes)(const char *path); /* by its blocks; 0: unknown */
    uint64_t (*free_bytes)(const char *path);      /* on its disk; UINT64_MAX: unknown */
    /* What is known of the state outside of its directory (witness.h). NULL: nothing. */
    enum status (*witness)(struct witness **witness, const char *cluster, const char *state_path,
                           struct err *err);
    /* What the directory remembers of its state (seen.h). NULL, both: nothing. */
    enum status (*seen_read)(const char *path, struct seen *seen, int64_t *at_ms, struct err *err);
    enum status (*seen_write)(const char *path, const struct seen *seen, struct err *err);
    /* The store cannot go on: ends the process, or leaves in another way; does not return. */
    void (*end)(struct store *store, int code);
};

/* The machine's own file system. */
extern const struct store_disk store_disk_usual;

/* store_open on a given disk. */
enum status store_open_on(struct store **store, const struct store_disk *disk, const char *dir,
                          bool survives_power, struct err *err);
enum status store_open_restore_on(struct store **store, const struct store_disk *disk,
                                  const char *dir, struct err *err);

#endif
