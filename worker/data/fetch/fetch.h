/* --fetch: downloads a data set into a folder, each file checked by its hash.
 *
 * A file is downloaded as `.NAME.part` and renamed when its hash is right; an interrupted download
 * continues where it ended. Only one process at a time downloads into a folder, others wait for it.
 *
 *     fetch.h    this
 *     http.h     one download, by libcurl
 *     unpack.h   chosen files of a tar.gz */
#ifndef WORKER_DATA_FETCH_FETCH_H
#define WORKER_DATA_FETCH_FETCH_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct fetch_options {
    const char *what;   /* mnist, cifar10, or a file of hashes as md5sum or sha256sum print it */
    const char *dir;    /* created if it does not exist */
    const char *mirror; /* URL of the files' folder; NULL: $DDP_MIRROR, else the set's own */
    uint32_t timeout_s; /* longest time without a byte */
};

/* Prints a line for each file. Errors name the file and what to do: STATUS_BAD_INPUT (the hash, the
 * list, the mirror), STATUS_NOT_FOUND, STATUS_CONFLICT (another file of that name is there),
 * STATUS_TIMEOUT, STATUS_CLOSED (cut off), STATUS_REFUSED (by the server), STATUS_IO (the disk),
 * STATUS_TOO_BIG, STATUS_LIBRARY, STATUS_MEMORY. */
enum status fetch_run(const struct fetch_options *options, struct err *err);

#define FETCH_HASH_BYTES 65 /* hex digits with their NUL: 32 of MD5 or 64 of SHA-256 */

struct fetch_item {
    char name[128];
    char hash[FETCH_HASH_BYTES];
    uint64_t byte_count; /* 0: unknown */
};

/* Parses lines of `HASH  NAME` into *items, owned by the caller. `path` is for errors. A NAME has no
 * '/' and does not begin with a dot. Errors: STATUS_BAD_INPUT (the line), STATUS_MEMORY. */
enum status fetch_parse_sums(const char *text, const char *path, struct fetch_item **items,
                             size_t *count, struct err *err);

#endif
