/* zip archives whose entries are stored, not compressed: what torch.save makes. Other kinds are
 * refused by name, when they are read.
 *
 * Format: PKWARE's APPNOTE 6.3.10, with zip64. The reader trusts the central directory alone, checks
 * every offset and size against the file, and keeps of the file no more than that directory. */
#ifndef WORKER_PTH_ZIP_H
#define WORKER_PTH_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define ZIP_DIRECTORY_BYTES_MAX (64U << 20)
#define ZIP_NAME_BYTES_MAX 300U
#define ZIP_BYTES_MAX 0xffffffffU /* of what the writer makes: it knows no zip64 */

struct zip_entry {
    const char *name; /* [name_bytes], no NUL at its end; in the directory's memory */
    uint32_t name_bytes;
    uint32_t crc; /* 0: none was computed (torch.serialization.set_crc32_options) */
    uint64_t byte_count;
    const char *refusal;   /* "compressed", "encrypted"; NULL: neither */
    uint64_t header_begin; /* offset of its local header */
};

struct zip {
    int fd;           /* borrowed */
    const char *what; /* borrowed: names the file in errors */
    char *directory;
    struct zip_entry *entries; /* [entry_count], sorted by name */
    size_t entry_count;
    uint64_t directory_begin; /* entries end before it */
};

/* Reads and checks the directory. Close with zip_close. Errors: STATUS_BAD_INPUT, STATUS_TOO_BIG,
 * STATUS_UNSUPPORTED (several disks), STATUS_IO, STATUS_MEMORY. */
enum status zip_open(struct zip *zip, int fd, const char *what, struct err *err);
void zip_close(struct zip *zip);

/* The entry of that name; NULL: there is none. */
const struct zip_entry *zip_find(const struct zip *zip, const char *name);
/* Whether an entry can be read: it is stored, and no larger than the file. Call it before memory is
 * asked for. Errors: STATUS_UNSUPPORTED. */
enum status zip_check(const struct zip *zip, const struct zip_entry *entry, struct err *err);
/* Checks an entry, reads it and checks its sum. bytes: [entry->byte_count] */
enum status zip_read(const struct zip *zip, const struct zip_entry *entry, void *bytes,
                     struct err *err);

/* A new archive, written from the start of `fd`. Data begins at multiples of 64 bytes. */
struct zip_writer {
    int fd; /* borrowed */
    uint64_t at;
    struct buf *directory;
    uint32_t entry_count;
};

/* Begin with {.fd = fd, .directory = an empty buf}. Errors: STATUS_TOO_BIG (over ZIP_BYTES_MAX, or
 * over 65535 entries), STATUS_IO with errno in code, STATUS_MEMORY. */
enum status zip_add(struct zip_writer *writer, const char *name, const void *bytes,
                    uint64_t byte_count, struct err *err);
/* Writes the directory: the archive is complete. */
enum status zip_finish(struct zip_writer *writer, struct err *err);

#endif
