/* Packs a working directory into a tar archive, for --stage. */
#ifndef DDPCTL_STAGE_PACK_H
#define DDPCTL_STAGE_PACK_H

#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

struct stage_packed {
    int fd; /* the archive, a file without a name; the caller closes it */
    uint64_t byte_count;
    char hash[STAGE_HASH_CHARS + 1];
    uint32_t file_count;
};

/* Packs files, folders and symbolic links below `dir`, ordered by name and without owners, so that
 * equal content gives equal archives. `.git` and `__pycache__` folders are left out.
 *   STATUS_NOT_FOUND    there is no folder `dir`
 *   STATUS_TOO_BIG      more than STAGE_BYTES_MAX; `err` names the largest entry
 *   STATUS_UNSUPPORTED  a socket, device or FIFO
 *   STATUS_LIBRARY      libarchive is not installed
 *   STATUS_IO, STATUS_MEMORY */
enum status stage_pack(const char *dir, struct stage_packed *packed, struct err *err);

#endif
