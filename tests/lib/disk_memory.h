/* Shared between disk_memory.c and disk_vfs.c. Where an int is returned: 0, or -1 with errno. */
#ifndef TESTS_LIB_DISK_MEMORY_H
#define TESTS_LIB_DISK_MEMORY_H

#include "tests/lib/disk_vfs.h"

#define DISK_REGIONS_MAX 16 /* of shared memory */

struct disk_file {
    uint8_t *cache, *stored; /* the page cache; the disk; both are zero after the file's end */
    uint8_t *dirty;          /* [sector] */
    uint64_t cache_bytes, stored_bytes, room_bytes, reserved_bytes;
    uint32_t open_count;
    void *regions[DISK_REGIONS_MAX];
};

/* Rises when the process is gone; all its handles are then stale. */
uint64_t disk_epoch(void);
int disk_errno(void);
uint64_t disk_draw(uint64_t limit);
/* The file with that name; -1: none. */
int disk_find(const char *path);
/* A new, empty file; -1 with errno. */
int disk_add(const char *path);
int disk_rename(const char *from, const char *to);
int disk_remove(const char *path);
struct disk_file *disk_file(int file);
int disk_read(const struct disk_file *file, void *bytes, uint64_t byte_count, uint64_t at,
              uint64_t *found);
int disk_write(struct disk_file *file, const void *bytes, uint64_t byte_count, uint64_t at);
int disk_truncate(struct disk_file *file, uint64_t byte_count);
int disk_sync(struct disk_file *file, bool with_names);
int disk_sync_names(void);
int disk_reserve(struct disk_file *file, uint64_t byte_count);
uint64_t disk_free_bytes(void);
/* The bytes of its blocks, also beyond its end. */
uint64_t disk_allocated(const struct disk_file *file);
void disk_drop_regions(struct disk_file *file);

#endif
