/* The folder of disk_vfs.h's disk: its names as programs see them, its names on the disk, and, in
 * order, the changes that have not reached the disk. */
#ifndef TESTS_LIB_DISK_NAMES_H
#define TESTS_LIB_DISK_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#define DISK_NAMES_MAX 16
#define DISK_CHANGES_MAX 64

struct disk_name {
    char path[512]; /* "": none */
    int file;
};

struct disk_name_change {
    struct disk_name made; /* path "": none */
    char gone[512];        /* "": none */
};

struct disk_names {
    struct disk_name now[DISK_NAMES_MAX], stored[DISK_NAMES_MAX];
    struct disk_name_change changes[DISK_CHANGES_MAX];
    uint32_t change_count;
};

/* -1: none */
int disk_names_find(struct disk_names *names, const char *path);
void disk_names_change(struct disk_names *names, const char *gone, const char *made, int file);
/* The first `count` changes have reached the disk. */
void disk_names_store(struct disk_names *names, uint32_t count);
/* The remaining changes are lost. */
void disk_names_lose(struct disk_names *names);
bool disk_names_have(const struct disk_names *names, int file);
/* Whether the file may have a name, now or after a power cut. */
bool disk_names_may_have(const struct disk_names *names, int file);

#endif
