/* The record of the newest jobs in the state directory, "seen", read and written by threads (file_work.h):
 *
 *   ddp-seen 1
 *   CLUSTER JOB GENERATION LEASE
 *   ...
 *
 * The lease is in microseconds, 0: not known; it may be missing. Later versions may add words to a line. */
#ifndef LAUNCHERD_NODE_SEEN_FILES_H
#define LAUNCHERD_NODE_SEEN_FILES_H

#include <limits.h>

#include "common/status.h"
#include "launcherd/core/seen_record.h"
#include "common/io/file_work.h"

struct seen_files {
    struct file_work work;
    void *owner; /* for the loop */
    char state_dir[PATH_MAX];
    struct seen_record record;
    /* Results. */
    enum status status;
    struct err err;
    struct err note; /* of a damaged file that was renamed; no text: there was none */
};

/* NULL: no memory. `drop` is set. */
struct seen_files *seen_files_new(const char *state_dir, void *owner);
/* `run`: reads, or replaces, the record. */
void seen_files_read(struct file_work *work);
void seen_files_write(struct file_work *work);

/* STATUS_NOT_FOUND: there is no file. STATUS_BAD_INPUT: it is damaged; `record` is empty then. STATUS_REFUSED: it is no
 * plain file of ours. STATUS_IO: it cannot be read. */
enum status seen_file_read(const char *state_dir, struct seen_record *record, struct err *err);
/* Replaces the file as a whole, and syncs it: it must outlive the machine's next loss of power. Waits for the disk. A
 * damaged file is renamed to "seen.damaged", with a number if there is one, and `note` says so. What is no plain file of ours, or cannot be read, is
 * left alone. Errors: as seen_file_read, but for STATUS_NOT_FOUND. */
enum status seen_file_write(const char *state_dir, const struct seen_record *record,
                            struct err *note, struct err *err);

/* The content of the file. STATUS_BAD_INPUT. */
enum status seen_file_decode(const char *text, struct seen_record *record, struct err *err);

#endif
