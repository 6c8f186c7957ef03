/* A disk in memory that behaves as badly as a real one may, as an SQLite VFS and as the table of
 * rendezvous/store/disk.h. One disk a process, for one process at a time that uses it.
 *
 * What programs read is the page cache. What is on the disk is separate: sectors of 512 bytes, sizes
 * of files, and names in the folder, all as of the last sync, or later by chance. A power cut leaves
 * what is on the disk: of the sectors that were written since, any subset (so a write may be torn), of
 * the changes of names any first part. After a sync that failed the kernel takes the sectors for
 * clean: they are lost without a further word, though programs read them until they are evicted, which
 * may happen as soon as no process has the file open (Rebello et al., ATC 2020). Everything is drawn
 * from a seed. */
#ifndef TESTS_LIB_DISK_VFS_H
#define TESTS_LIB_DISK_VFS_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/store/disk.h"

enum disk_op { DISK_READ, DISK_WRITE, DISK_SYNC, DISK_NAME /* made, renamed, removed */, DISK_OPS };

/* What a power cut leaves of that which was not synced. */
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
/* The power goes at the change with that number, which is done in part. From then on everything fails
 * until disk_power_on. 0: never. */
void disk_cut_at(uint64_t change);
bool disk_is_off(void);
/* The operation of that kind with that number, and the `count` - 1 after it, fail with `code` (EIO). */
void disk_fail_at(enum disk_op op, uint64_t number, uint64_t count, int code);
/* All syncs of that file; NULL: none. */
void disk_fail_syncs_of(const char *path, int code);
void disk_set_capacity(uint64_t capacity_bytes);
uint64_t disk_used(void);
/* A sync takes that long. */
void disk_set_sync_time(uint64_t sync_us);
/* What all syncs have taken. */
uint64_t disk_busy_us(void);

/* The process is gone: its descriptors, its locks, its shared memory. What it wrote is in the page
 * cache. Its handles may still be closed; they do nothing more. */
void disk_process_killed(void);
/* The same for the process that has this store; frees its memory. */
void disk_bury(struct store *store);
/* The process is gone, and the machine lost its power; now it has it again. */
void disk_power_on(enum disk_rest rest);

/* A copy of the whole disk, and back to it; one copy at most. Nothing may be open. */
void disk_save(void);
void disk_restore(uint64_t seed);

#endif
