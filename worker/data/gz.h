/* Reads a file that may be compressed with gzip, from its beginning to its end. Unlike zlib's
 * gzread it checks length and CRC of every member, also of a member that is cut in its last bytes.
 * After the last member only zeros may follow, as in Python's gzip. */
#ifndef WORKER_DATA_GZ_H
#define WORKER_DATA_GZ_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

struct gz;

/* Errors: STATUS_NOT_FOUND, STATUS_IO, STATUS_BAD_INPUT (not a regular file), STATUS_MEMORY. */
enum status gz_open(struct gz **gz, const char *path, struct err *err);
void gz_close(struct gz **gz);
bool gz_is_compressed(const struct gz *gz);
/* Size of the file on the disk. */
uint64_t gz_file_bytes(const struct gz *gz);
/* The next bytes; `*got` is below `byte_count` only at the end of the file. Errors: STATUS_IO,
 * STATUS_BAD_INPUT (cut off or damaged; names the file and the byte). */
enum status gz_read(struct gz *gz, void *bytes, uint64_t byte_count, uint64_t *got,
                    struct err *err);

#endif
