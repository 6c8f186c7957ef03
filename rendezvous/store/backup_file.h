/* The file of a backup, see backup.h: parts with a checksum behind them. */
#ifndef RENDEZVOUS_STORE_BACKUP_FILE_H
#define RENDEZVOUS_STORE_BACKUP_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/buf.h"
#include "common/status.h"

#define BACKUP_PART_BYTES_MAX (64u << 20)

struct evp_md_ctx_st;

struct backup_file {
    FILE *file;
    const char *path; /* borrowed */
    struct evp_md_ctx_st *hash;
    struct buf part; /* that was read; a NUL is behind it */
    char tag;
};

/* A new file, 0600. Errors: STATUS_CONFLICT: it is there already. */
enum status backup_file_make(struct backup_file *file, const char *path, struct err *err);
enum status backup_file_put(struct backup_file *file, char tag, const void *bytes,
                            size_t byte_count, struct err *err);
/* With its checksum, on the disk. */
enum status backup_file_finish(struct backup_file *file, struct err *err);

/* Checks the whole file. Errors: STATUS_BAD_INPUT, STATUS_NOT_FOUND. */
enum status backup_file_open(struct backup_file *file, const char *path, struct err *err);
/* The next part; tag 0: there are no more. */
enum status backup_file_next(struct backup_file *file, struct err *err);

/* A file that was made and not finished is removed. */
void backup_file_close(struct backup_file *file);

#endif
