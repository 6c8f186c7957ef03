/* Where the files in a tar are. libarchive reads the headers once; nothing is extracted. The tar
 * must not be compressed, so that each file is in one piece and can be read at its offset. */
#ifndef WORKER_DATA_SHARDS_TAR_H
#define WORKER_DATA_SHARDS_TAR_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define TAR_NAME_BYTES_MAX 1024U
#define TAR_MEMBER_BYTES_MAX (UINT64_C(1) << 30)

/* A regular file of the tar. */
struct tar_member {
    const char *name; /* relative, without ".." and "./"; valid during the call */
    uint64_t offset, byte_count;
};

/* The number of left-out files, and the reason for the first. */
struct tar_refusals {
    uint64_t count;
    char first[200];
};
/* `where` is the shard, `name` the file in it. */
void tar_refuse(struct tar_refusals *refusals, const char *where, const char *name,
                const char *why);

typedef enum status (*tar_take)(void *user, const struct tar_member *member, struct err *err);

/* Calls `take` for each regular file of `path`, open as `fd`, in the order of the tar. Files with an
 * absolute name or one with "..", links, devices, sparse and empty files, and files over
 * TAR_MEMBER_BYTES_MAX are left out and counted; folders are skipped. Errors: STATUS_BAD_INPUT
 * (no tar, or cut off: names the tar and the byte), STATUS_UNSUPPORTED (compressed), STATUS_IO,
 * STATUS_MEMORY, and those of `take`. */
enum status tar_walk(int fd, const char *path, tar_take take, void *user,
                     struct tar_refusals *refusals, struct err *err);

#endif
