/* Reading and writing the file of a backup (backup.h). */
#ifndef RENDEZVOUS_STORE_BACKUP_FILE_H
#define RENDEZVOUS_STORE_BACKUP_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/buf.h"
#include "common/status.h"

#define BACKUP_PART_BYTES_MAX (64u << 20)

struct evp_md_ctx_st;
struct openssl_library;

struct backup_file {
    FILE *file;
    const char *path; /* borrowed */
    const struct openssl_library *openssl;
    struct evp_md_ctx_st *hash;
    struct buf part; /* the part that was read, with a NUL after it */
    char tag;
    long moved_at;  /* of that byte; 0: it is not of a moved state */
    int write_code; /* errno: it could only be opened for reading; 0: also for writing */
};

/* Creates the file with mode 0600. Errors: STATUS_CONFLICT: it exists already. */
enum status backup_file_make(struct backup_file *file, const char *path, struct err *err);
enum status backup_file_put(struct backup_file *file, char tag, const void *bytes,
                            size_t byte_count, struct err *err);
/* Writes the checksum and syncs the file. */
enum status backup_file_finish(struct backup_file *file, struct err *err);

/* Checks the whole file. `is_restore`: it may be marked as used. Errors: STATUS_BAD_INPUT, STATUS_NOT_FOUND. */
enum status backup_file_open(struct backup_file *file, const char *path, bool is_restore,
                             struct err *err);
/* Marks a file of a moved state as used, durably, by one byte that its checksum leaves out. False: it is used already, or
 * cannot be marked; `why` says which. Only one of several processes gets true. */
bool backup_file_use(struct backup_file *file, char *why, size_t why_bytes);
/* Reads the next part; tag 0: there are no more. */
enum status backup_file_next(struct backup_file *file, struct err *err);

/* Removes a file that was created and not finished. */
void backup_file_close(struct backup_file *file);

#endif
