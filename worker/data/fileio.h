/* Whole reads and writes, and replacement of files that survives a crash. Blocking; used by
 * checkpoints. */
#ifndef WORKER_DATA_FILEIO_H
#define WORKER_DATA_FILEIO_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct cJSON;

/* All bytes or STATUS_IO with errno in code. */
enum status fileio_write(int fd, const void *bytes, uint64_t byte_count, struct err *err);
/* All bytes from `offset`; a shorter file is STATUS_BAD_INPUT. `what` names the file in errors. */
enum status fileio_read_at(int fd, const char *what, void *bytes, uint64_t byte_count,
                           uint64_t offset, struct err *err);
/* Bytes of a regular file; anything else is STATUS_BAD_INPUT. */
enum status fileio_size(int fd, const char *what, uint64_t *byte_count, struct err *err);
/* A whole small file with a NUL behind it, owned by the caller; over `byte_limit` is
 * STATUS_TOO_BIG. */
enum status fileio_read_file(const char *path, uint64_t byte_limit, char **bytes,
                             uint64_t *byte_count, struct err *err);
/* SHA-256 of what lies at `path`, as 64 lower-case hex digits in `hex` [65]; `byte_count` gets its
 * size. */
enum status fileio_sha256(const char *path, char *hex, uint64_t *byte_count, struct err *err);

/* Makes `path` for writing (mode 0644 less the umask), fails where it is there already. */
enum status fileio_create(const char *path, int *fd, struct err *err);
/* fsync and close; the descriptor is closed in any case. */
enum status fileio_finish(int fd, const char *path, struct err *err);
/* rename, then fsync of the directory `dir`. */
enum status fileio_rename(const char *from, const char *to, const char *dir, struct err *err);

/* Strict JSON over exactly `byte_count` bytes: nothing but white space behind the value, no NUL,
 * raw or escaped, no key twice in an object. NULL when it is anything else. Free with cJSON_Delete.
 */
struct cJSON *fileio_parse_json(const char *bytes, size_t byte_count);

#endif
