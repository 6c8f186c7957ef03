/* A disk in memory that behaves as badly as a real disk may, for use as an SQLite VFS and as the table of
 * rendezvous/store/disk.h. One disk in each process of the test; one simulated process at a time uses it.
 *
 * Programs read the page cache. The content of the disk is separate: sectors of 512 bytes, file sizes, and names in
 * the folder, all as of the last sync, or by chance newer. After a power cut the disk has this content. Of the sectors
 * written since, any subset may have survived (so a write may be torn); of the changes of names, any prefix. After a
 * failed sync the kernel considers the sectors clean. They are silently lost, although programs still read them until
 * they are evicted, which may happen as soon as no process has the file open (Rebello et al., ATC 2020). A seed
 * determines all random choices. */
#ifndef TESTS_LIB_DISK_VFS_H
#define TESTS_LIB_DISK_VFS_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/store/disk.h"

enum disk_op { DISK_READ, DISK_WRITE, DISK_SYNC, DISK_NAME /* made, renamed, removed */, DISK_OPS };

/* What a power cut leaves of the data that was not synced. */
enum disk_rest { DISK_REST_NONE, DISK_REST_ALL, DISK_REST_SOME };

/* Empties the disk; `capacity_bytes`: 0 for no limit. */
void disk_init(uint64_t seed, uint64_t capacity_bytes);
void disk_free(void);
/* The table for store_open_on; `on_end` is its `end`. */
const struct store_disk *disk_table(void (*on_end)(struct store *store, int code));

/* Operations of that kind so far. */
uint64_t disk_count(enum disk_op op);
/* Writes, syncs and changes of names so far. */
uint64_t disk_changes(void);
/* Cuts the power during the change of that number, which is done in part. Then everything fails
 * until disk_power_on. 0: never. */
void disk_cut_at(uint64_t change);
bool disk_is_off(void);
/* The operation of that kind and number, and the `count` - 1 after it, fail with `code` (EIO). */
void disk_fail_at(enum disk_op op, uint64_t number, uint64_t count, int code);
/* All syncs of that file fail; NULL: none. */
void disk_fail_syncs_of(const char *path, int code);
void disk_set_capacity(uint64_t capacity_bytes);
uint64_t disk_used(void);
/* Sets how long a sync takes. */
void disk_set_sync_time(uint64_t sync_us);
/* How long all syncs have taken together. */
uint64_t disk_busy_us(void);

/* Ends the simulated process, with its descriptors, locks and shared memory. Its written data is in
 * the page cache. Its handles may still be closed, without effect. */
void disk_process_killed(void);
/* The same for the process that has this store; frees the store's memory. */
void disk_bury(struct store *store);
/* Ends the process; the machine loses and regains power. */
void disk_power_on(enum disk_rest rest);

/* disk_save copies the whole disk, and the other function restores that copy. One copy at most. No
 * file may be open. */
void disk_save(void);
void disk_restore(uint64_t seed);

#endif
