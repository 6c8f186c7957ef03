/* The archives of staged working directories in STATE_DIR/stage (node_stage.h), as work for threads (file_work.h). */
#ifndef LAUNCHERD_NODE_ARCHIVE_FILES_H
#define LAUNCHERD_NODE_ARCHIVE_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/stage.h"
#include "common/status.h"
#include "common/io/file_work.h"

/* An archive, and what has been fetched of it. Descriptor and digest go from one work to the next. */
struct archive_files {
    struct file_work work;
    void *owner; /* for the loop */
    char dir[PATH_MAX];
    char hash[STAGE_HASH_CHARS + 1];
    int fd;                      /* of HASH.part; owned; -1: none */
    struct stage_digest *digest; /* owned */
    uint64_t have;
    uint8_t *bytes; /* archive_files_write: owned */
    size_t byte_count;
    bool is_last;
    uint64_t bytes_max; /* archive_files_trim */
    /* Results. */
    bool is_there; /* the whole archive */
    enum status status;
    struct err err;
};

/* NULL: no memory. `drop` is set. */
struct archive_files *archive_files_new(const char *dir, const char *hash, void *owner);
/* `run`: whether the whole archive is there. This counts as a use. */
void archive_files_check(struct file_work *work);
/* `run`: begins to write it. */
void archive_files_begin(struct file_work *work);
/* `run`: adds bytes. After the last ones, checks the hash and gives it its name. */
void archive_files_write(struct file_work *work);
/* `run`: removes what was fetched. */
void archive_files_abandon(struct file_work *work);
/* `run`: removes archives that were not used for longest. */
void archive_files_trim(struct file_work *work);

#endif
