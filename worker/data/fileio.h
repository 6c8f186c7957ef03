/* Files: complete reads and writes, and replacing a file so that a crash leaves either the old or
 * the new one. All calls block. */
#ifndef WORKER_DATA_FILEIO_H
#define WORKER_DATA_FILEIO_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct cJSON;

/* Writes all bytes. Errors: STATUS_IO with errno in code. */
enum status fileio_write(int fd, const void *bytes, uint64_t byte_count, struct err *err);
/* Reads all bytes from `offset`. Errors: STATUS_BAD_INPUT (the file is shorter), STATUS_IO. `what`
 * names the file in errors. */
enum status fileio_read_at(int fd, const char *what, void *bytes, uint64_t byte_count,
                           uint64_t offset, struct err *err);
/* The size of a regular file. Errors: STATUS_BAD_INPUT (not a regular file), STATUS_IO. */
enum status fileio_size(int fd, const char *what, uint64_t *byte_count, struct err *err);
/* Reads a whole file into *bytes, followed by a NUL, owned by the caller. Errors: STATUS_TOO_BIG
 * (over `byte_limit`), STATUS_NOT_FOUND, STATUS_IO, STATUS_MEMORY. */
enum status fileio_read_file(const char *path, uint64_t byte_limit, char **bytes,
                             uint64_t *byte_count, struct err *err);
/* SHA-256 of a file as 64 lower-case hex digits, `hex` [65], and its size. */
enum status fileio_sha256(const char *path, char *hex, uint64_t *byte_count, struct err *err);
/* MD5 as 32 digits, `hex` [33]: protects against transfer errors, not against forgery. */
enum status fileio_md5(const char *path, char *hex, uint64_t *byte_count, struct err *err);

/* SHA-256 of bytes in memory, `hex` [65]. Errors: STATUS_LIBRARY. */
enum status fileio_sha256_bytes(const void *bytes, size_t byte_count, char *hex, struct err *err);

/* Creates `path` for writing, mode 0644 less the umask; fails if it exists. */
enum status fileio_create(const char *path, int *fd, struct err *err);
/* fsync and close; the descriptor is closed in any case. */
enum status fileio_finish(int fd, const char *path, struct err *err);
/* Writes `bytes` as the new file `path`, which must not be there, and syncs it. */
enum status fileio_write_file(const char *path, const void *bytes, size_t byte_count,
                              struct err *err);
/* rename(2), then fsync(2) of the directory `dir`, so that the rename survives a crash. */
enum status fileio_rename(const char *from, const char *to, const char *dir, struct err *err);

/* A file that is written from start to end and hashed at the same time, so that its SHA-256 needs
 * no second read. Earlier bytes go to the disk while later ones are hashed. */
struct fileio_out {
    int fd;
    struct evp_md_ctx_st *digest; /* OpenSSL's EVP_MD_CTX; NULL: not hashed */
    uint64_t byte_count;          /* so far */
};

/* Creates the file, which must not be there. After success close it with fileio_out_finish or
 * fileio_out_drop. Errors: STATUS_IO, STATUS_LIBRARY. */
enum status fileio_out_open(struct fileio_out *out, const char *path, struct err *err);
enum status fileio_out_write(struct fileio_out *out, const void *bytes, uint64_t byte_count,
                             struct err *err);
/* fsync and close; `hex` [65] gets the SHA-256. The file is closed also on failure. */
enum status fileio_out_finish(struct fileio_out *out, const char *path, char *hex, struct err *err);
/* Closes the file and leaves its content as it is. */
void fileio_out_drop(struct fileio_out *out);

/* Parses strict JSON of exactly `byte_count` bytes: only white space after the value, no NUL (raw
 * or escaped), no key twice in an object. NULL for anything else. Free with cJSON_Delete(). */
struct cJSON *fileio_parse_json(const char *bytes, size_t byte_count);

#endif
