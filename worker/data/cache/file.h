/* The file of a cache: private to worker/data/cache/.
 *
 *     0       header, HEADER bytes
 *     4096    a table with an entry for each picture
 *     ...     pixels, in the order in which they were added
 *
 * All numbers are in the byte order of the machine that wrote the file; with another byte order the
 * magic number does not match. */
#ifndef WORKER_DATA_CACHE_FILE_H
#define WORKER_DATA_CACHE_FILE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/data/picture/picture.h"

struct cache_key {
    uint64_t source, count; /* of the samples */
    uint32_t side;          /* the shorter side of a kept picture */
};

struct cache_file {
    int fd, append_fd; /* -1: none */
    char *path;
    struct cache_key key;
    uint64_t key_hash;
    uint64_t data_at;      /* where pixels begin */
    const uint8_t *mapped; /* from offset 0; NULL: none. Longer than the file */
    uint64_t mapped_bytes;
    atomic_bool is_building; /* pictures may be added */
    /* [count]: the checksum of the entry whose pixels were checked and found right; 0: none. If
     * someone overwrites the file, the entry differs, and its pixels are checked again. */
    _Atomic uint64_t *checked;
    pthread_mutex_t appending;
};

/* Opens or creates the file. `need_bytes`: an estimate of the bytes of all pixels. Errors:
 * STATUS_CONFLICT, STATUS_BAD_INPUT (see cache.h); STATUS_IO, STATUS_TOO_BIG (no room): the file
 * cannot be created or used. */
enum status cache_file_open(struct cache_file *file, const char *path, const struct cache_key *key,
                            uint64_t need_bytes, uint64_t rebuild_for, bool rebuild,
                            struct err *err);
void cache_file_close(struct cache_file *file);

enum cache_find { CACHE_ABSENT, CACHE_FOUND, CACHE_DAMAGED };
/* The pixels of a picture; valid as long as the file is open. */
enum cache_find cache_file_find(struct cache_file *file, uint64_t index, struct picture *picture,
                                uint32_t *label);
/* Errors: STATUS_IO; after it nothing more is added. */
enum status cache_file_add(struct cache_file *file, uint64_t index, const struct picture *picture,
                           uint32_t label, struct err *err);
/* Whether a cache exists: if so, its size need not be estimated. */
bool cache_file_is_there(const char *path);

#endif
